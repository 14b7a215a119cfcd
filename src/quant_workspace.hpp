// The folder in which a long run builds its result, and the journal by which a later run goes on.
//   <output>.partial/journal.jsonl   first line: the key of the work; then a line for each finished piece
//   <output>.partial/model/          becomes <output> at the end, by one rename
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qf/core/result.hpp"
#include "src/io_posix.hpp"

namespace qf::quant::detail {

class Workspace {
 public:
  // Takes the folder's lock (held until destruction), keeps what an earlier run with the same key left there, and
  // throws away what one with another key left. Errors: another process holds the lock, the output exists and
  // `overwrite` is false, it isn't a model's folder though `overwrite` is true, "<output>.partial" isn't ours.
  static Result<Workspace> open(const std::string& output, const std::string& key, bool resume,
                                bool overwrite);

  // True when an earlier run had put everything in place and was stopped before it could tidy up: nothing is left to
  // do but finish().
  bool complete() const { return complete_; }
  const std::string& partial() const { return partial_; }
  const std::string& folder() const { return folder_; }
  // What earlier runs have noted, in order.
  const std::vector<std::string>& lines() const { return lines_; }

  // Notes a finished piece. `line` has no line break.
  Status note(std::string_view line);
  // Removes what is in folder() but not among `files`: an earlier run's or somebody else's.
  Status keep_only(const std::vector<std::string>& files) const;
  // Flushes folder(), puts it under the final name and removes the rest. Its files have been flushed before.
  Status finish();

 private:
  Status start_afresh();
  Status read_journal();
  Status check_output(bool overwrite) const;
  Status exchange();

  std::string output_, partial_, folder_, journal_path_, key_line_;
  std::vector<std::string> lines_;
  io::detail::Descriptor lock_, journal_;
  bool output_exists_ = false, complete_ = false;
};

// `output` as the pipeline takes it: no slashes at the end. invalid_argument when nothing remains.
Result<std::string> clean_output_path(const std::string& output);

Status flush(int fd, const std::string& path);
Status flush_folder(const std::string& folder);
Status write_all(int fd, const std::string& path, std::uint64_t offset, const void* bytes, std::size_t count);

}  // namespace qf::quant::detail
