#include "src/quant_workspace.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "qf/io/file_writer.hpp"

namespace qf::quant::detail {
namespace {

namespace fs = std::filesystem;
using io::detail::Descriptor;
using io::detail::system_error;

constexpr std::string_view kDone = "{\"done\":true}";
constexpr std::uint64_t kLongestJournal = std::uint64_t{256} << 20;

bool exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Status remove_tree(const std::string& path) {
  std::error_code code;
  fs::remove_all(path, code);
  return code ? system_error(path, "cannot be removed", code.value()) : Status();
}

bool is_empty_folder(const std::string& path) {
  std::error_code code;
  return fs::is_empty(path, code) && !code;
}

constexpr std::string_view kJournal = "journal.jsonl";

// Paths of what is in a folder, but for one name.
Result<std::vector<std::string>> entries_but(const std::string& folder, std::string_view name) {
  std::vector<std::string> entries;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code))
    if (it->path().filename() != name) entries.push_back(it->path().string());
  if (code) return system_error(folder, "cannot be read", code.value());
  return entries;
}

// The journal marks the folder as ours: it comes first and goes last.
Status remove_all_but_journal(const std::string& partial) {
  QF_TRY_ASSIGN(const auto entries, entries_but(partial, kJournal));
  for (const std::string& entry : entries) QF_TRY(remove_tree(entry));
  return {};
}

Status remove_partial(const std::string& partial) {
  QF_TRY(remove_all_but_journal(partial));
  return remove_tree(partial);
}

// Not there, or with a journal, or stopped before it had one.
bool is_ours(const std::string& partial) {
  if (!exists(partial) || exists(cat({partial, "/", kJournal}))) return true;
  const auto entries = entries_but(partial, cat({kJournal, ".partial"}));
  return entries.ok() && entries->empty();
}

// The folder, locked. One that its owner renamed or removed between our open and our lock is opened anew.
Result<Descriptor> lock_folder(const std::string& path) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
      return system_error(path, "cannot be made", errno);
    Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder.ok()) {
      if (errno == ENOENT) continue;
      return system_error(path, "cannot be opened as a folder", errno);
    }
    if (::flock(folder.fd(), LOCK_EX | LOCK_NB) != 0)
      return errno == EWOULDBLOCK
                 ? Status(Errc::io_error, cat({path, ": another process is at work on this output"}))
                 : system_error(path, "cannot be locked", errno);
    struct stat opened, named;
    if (::fstat(folder.fd(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev)
      return folder;
  }
  return Status(Errc::io_error, cat({path, ": another process is at work on this output"}));
}

}  // namespace

Status flush(int fd, const std::string& path) {
  int code = 0;
  do {
    code = ::fsync(fd) == 0 ? 0 : errno;
  } while (code == EINTR);
  // Some file systems can't flush a folder and say so with EINVAL.
  return code == 0 || code == EINVAL ? Status() : system_error(path, "cannot be flushed to the disk", code);
}

Status flush_folder(const std::string& folder) {
  const Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.ok()) return system_error(folder, "cannot be opened", errno);
  return flush(file.fd(), folder);
}

Status write_all(int fd, const std::string& path, std::uint64_t offset, const void* bytes,
                 std::size_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done =
        ::pwrite(fd, from, std::min(count, std::size_t{1} << 30), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return system_error(path, "cannot be written", done < 0 ? errno : ENOSPC);
    from += done;
    count -= static_cast<std::size_t>(done);
    offset += static_cast<std::uint64_t>(done);
  }
  return {};
}

Result<std::string> clean_output_path(const std::string& output) {
  std::string path = output;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string last = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  if (last.empty() || last == "." || last == "..")
    return Status(Errc::invalid_argument,
                  cat({"output ", printable(output), ": the name of a folder to make expected"}));
  return path;
}

Result<Workspace> Workspace::open(const std::string& output, const std::string& key, bool resume,
                                  bool overwrite) {
  Workspace work;
  work.output_ = output;
  work.partial_ = output + ".partial";
  work.folder_ = work.partial_ + "/model";
  work.journal_path_ = cat({work.partial_, "/", kJournal});
  work.key_line_ = cat({"{\"qf_journal\":1,\"key\":\"", key, "\"}"});
  std::error_code code;
  if (!fs::is_directory(parent_of(output), code))
    return Status(Errc::not_found, cat({parent_of(output), ": no such folder to put the output in"}));
  work.output_exists_ = exists(output);
  if (work.output_exists_ && !exists(work.partial_)) QF_TRY(work.check_output(overwrite));

  if (!is_ours(work.partial_))
    return Status(Errc::invalid_argument,
                  cat({work.partial_, ": holds no journal of an interrupted run; move it away"}));
  QF_TRY_ASSIGN(work.lock_, lock_folder(work.partial_));
  work.output_exists_ = exists(output);  // whoever held the lock may just have made it
  QF_TRY(work.read_journal());
  if (work.complete_) return work;
  if (work.output_exists_) {
    const Status status = work.check_output(overwrite);
    if (!status.ok()) {
      if (!exists(work.folder_)) QF_TRY(remove_partial(work.partial_));  // nothing worth keeping
      return status;
    }
  }
  if (!resume || !work.journal_.ok() || !exists(work.folder_)) QF_TRY(work.start_afresh());
  return work;
}

Status Workspace::check_output(bool overwrite) const {
  if (!overwrite)
    return Status(Errc::invalid_argument, cat({output_, ": exists; choose another output or overwrite it"}));
  struct stat info;
  if (::lstat(output_.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return Status(Errc::invalid_argument, cat({output_, ": not a folder, so it isn't overwritten"}));
  if (!exists(output_ + "/config.json") && !is_empty_folder(output_))
    return Status(Errc::invalid_argument,
                  cat({output_, ": not the folder of a model (no config.json), so it isn't overwritten"}));
  return {};
}

// Lines up to the last complete one; journal_ stays closed unless the key is ours.
Status Workspace::read_journal() {
  if (!exists(journal_path_)) return {};
  QF_TRY_ASSIGN(const std::string text, io::read_file(journal_path_, kLongestJournal));
  std::size_t at = 0;
  std::vector<std::string> lines;
  for (std::size_t end; (end = text.find('\n', at)) != text.npos; at = end + 1)
    lines.push_back(text.substr(at, end - at));
  if (lines.empty() || lines[0] != key_line_) return {};
  const bool done = lines.back() == kDone;
  if (done) lines.pop_back();
  lines_.assign(lines.begin() + 1, lines.end());
  complete_ = done && output_exists_ && !exists(folder_);
  journal_ = Descriptor(::open(journal_path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  if (!journal_.ok()) return system_error(journal_path_, "cannot be opened", errno);
  // What a kill left of a line, and a mark of completeness that the rename didn't follow.
  const std::size_t kept = done && !complete_ ? at - kDone.size() - 1 : at;
  if (kept != text.size() && ::ftruncate(journal_.fd(), static_cast<off_t>(kept)) != 0)
    return system_error(journal_path_, "cannot be shortened", errno);
  return {};
}

Status Workspace::start_afresh() {
  lines_.clear();
  journal_ = Descriptor();
  QF_TRY(remove_all_but_journal(partial_));
  QF_TRY(io::write_file(journal_path_, key_line_ + "\n"));
  journal_ = Descriptor(::open(journal_path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  if (!journal_.ok()) return system_error(journal_path_, "cannot be opened", errno);
  if (::mkdir(folder_.c_str(), 0777) != 0) return system_error(folder_, "cannot be made", errno);
  return {};
}

Status Workspace::note(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t done = ::write(journal_.fd(), rest.data(), rest.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return system_error(journal_path_, "cannot be written", done < 0 ? errno : ENOSPC);
    rest.remove_prefix(static_cast<std::size_t>(done));
  }
  return {};
}

Status Workspace::keep_only(const std::vector<std::string>& files) const {
  QF_TRY_ASSIGN(const auto entries, entries_but(folder_, ""));
  for (const std::string& entry : entries)
    if (std::find(files.begin(), files.end(), fs::path(entry).filename().string()) == files.end())
      QF_TRY(remove_tree(entry));
  return {};
}

Status Workspace::finish() {
  if (!complete_) {
    QF_TRY(flush_folder(folder_));
    if (output_exists_) {
      QF_TRY(exchange());
    } else {
      QF_TRY(note(kDone));
      QF_TRY(flush(journal_.fd(), journal_path_));
      // An empty folder that appeared meanwhile would be replaced by a plain rename.
      int failed = ::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, output_.c_str(), RENAME_NOREPLACE);
      if (failed && (errno == EINVAL || errno == ENOSYS)) failed = ::rename(folder_.c_str(), output_.c_str());
      if (failed) return system_error(output_, "cannot be put in place", errno);
    }
    QF_TRY(flush_folder(parent_of(output_)));
  }
  return remove_partial(partial_);
}

// The old output and the new folder change places in one step; what is old goes with the partial folder. From here on
// the journal belongs to no work: a kill in between must not make the old folder pass for a result.
Status Workspace::exchange() {
  journal_ = Descriptor();
  QF_TRY(io::write_file(journal_path_, "{\"qf_journal\":1,\"key\":\"\"}\n"));
  if (::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, output_.c_str(), RENAME_EXCHANGE) == 0) return {};
  if (errno != EINVAL && errno != ENOSYS) return system_error(output_, "cannot be put in place", errno);
  const std::string old = partial_ + "/old";
  if (::rename(output_.c_str(), old.c_str()) != 0)
    return system_error(output_, "cannot be moved away", errno);
  if (::rename(folder_.c_str(), output_.c_str()) == 0) return {};
  const int code = errno;
  ::rename(old.c_str(), output_.c_str());
  return system_error(output_, "cannot be put in place", code);
}

}  // namespace qf::quant::detail
