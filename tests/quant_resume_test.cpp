// Runs that end early: killed at every system call that changes something, cancelled, out of disk, side by side.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstdio>
#include <functional>
#include <set>

#include "qf/quant/pipeline.hpp"
#include "tests/quant_files.hpp"

using namespace qf;
using namespace qf::quant;
using namespace quant_test;

namespace {

// Runs `body` in a child; its exit status.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// Calls after which a disk looks different.
bool changes_something(long call) {
  static const std::set<long> kCalls{SYS_pwrite64, SYS_write,     SYS_fsync,    SYS_ftruncate, SYS_fallocate,
                                     SYS_openat,   SYS_renameat2, SYS_unlinkat, SYS_mkdirat,   SYS_renameat,
#ifdef SYS_rename
                                     SYS_rename,   SYS_unlink,    SYS_mkdir,    SYS_rmdir
#endif
  };
  return kCalls.count(call) > 0;
}

enum class Ending { finished, killed, untraceable };

// Runs `body` in a child that is killed before the changing system call number `at` (from 0).
Ending run_until(long at, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) return Ending::untraceable;
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  int signal = 0;
  for (long seen = 0;;) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, signal);
    signal = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status) || WIFSIGNALED(status)) return Ending::finished;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
      signal = WSTOPSIG(status);
      continue;
    }
    __ptrace_syscall_info info;
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) <= 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return Ending::untraceable;
    }
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY || !changes_something(static_cast<long>(info.entry.nr)))
      continue;
    if (seen++ == at) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return Ending::killed;
    }
  }
}

// In memory where there is such a disk: the runs here flush thousands of times, and a kill loses nothing either way.
[[maybe_unused]] const bool kInMemory =
    ::access("/dev/shm", W_OK) == 0 && ::setenv("TMPDIR", "/dev/shm", 0) == 0;

PipelineOptions small_files() {
  PipelineOptions options;
  options.max_shard_bytes = 12000;
  options.slab_bytes = 2048;
  return options;
}

struct Stopper {
  int events_left;
  static bool on_event(void* user, const ProgressEvent&) {
    return static_cast<Stopper*>(user)->events_left-- > 0;
  }
  Progress progress() { return {&on_event, this}; }
};

}  // namespace

TEST_CASE(
    "resume: killed before any system call that changes something, the next run ends in the same bytes") {
  for (const bool overwrite : {false, true}) {
    const TempFolder temp;
    const std::string in = temp / "in", out = temp / "out";
    REQUIRE(make_checkpoint(in, tiny_tensors(1)));
    PipelineOptions options = small_files();
    options.overwrite = overwrite;
    REQUIRE(quantize_checkpoint(in, temp / "expected", w4(), options).ok());
    const auto expected = contents(temp / "expected");
    const std::map<std::string, std::string> old{{"config.json", "{}"}, {"old.txt", "old"}};
    long kills = 0;
    for (long at = 0;; ++at) {
      std::filesystem::remove_all(out);
      if (overwrite) {
        std::filesystem::create_directories(out);
        for (const auto& [name, text] : old) put(out + "/" + name, text);
      }
      const Ending ending = run_until(at, [&] { (void)quantize_checkpoint(in, out, w4(), options).ok(); });
      if (ending == Ending::untraceable) {
        std::printf("SKIPPED resume at every system call: this machine doesn't let a test trace its child\n");
        return;
      }
      INFO("killed before call " << at << (overwrite ? ", overwriting" : ""));
      // Under the final name: nothing or what was there, or all of the new.
      if (exists(out)) {
        const auto there = contents(out);
        REQUIRE((there == expected || (overwrite && there == old)));
      } else {
        REQUIRE_FALSE(overwrite);
      }
      if (ending == Ending::finished) break;
      ++kills;
      auto again = quantize_checkpoint(in, out, w4(), options);
      // Killed after the rename and the tidying: the folder is there, and a run without leftovers says so.
      const bool was_complete =
          !overwrite && !again.ok() &&
          again.status().text() == out + ": exists; choose another output or overwrite it";
      INFO(again.status().text());
      REQUIRE((again.ok() || was_complete));
      REQUIRE(contents(out) == expected);
      REQUIRE_FALSE(exists(out + ".partial"));
    }
    REQUIRE(kills > 60);
  }
}

TEST_CASE("resume: killed at random moments, again and again, the run still ends in the same bytes") {
  const TempFolder temp;
  const std::string in = temp / "in", out = temp / "out";
  REQUIRE(make_checkpoint(in, tiny_tensors(6)));
  REQUIRE(quantize_checkpoint(in, temp / "expected", w4(), small_files()).ok());
  const auto expected = contents(temp / "expected");
  kill_often({.seed = 1, .rounds = 40, .kills = 20, .microseconds = 8000}, out, expected,
             [&] { (void)quantize_checkpoint(in, out, w4(), small_files()).ok(); });
  (void)quantize_checkpoint(in, out, w4(), small_files()).ok();
  REQUIRE(contents(out) == expected);
}

TEST_CASE("resume: cancelled at any event, finished tensors are kept and not done again") {
  const TempFolder temp;
  const std::string in = temp / "in", out = temp / "out";
  REQUIRE(make_checkpoint(in, tiny_tensors(2)));
  REQUIRE(quantize_checkpoint(in, temp / "expected", w4(), small_files()).ok());
  const auto expected = contents(temp / "expected");
  std::size_t most_resumed = 0;
  for (int events = 0;; ++events) {
    Stopper stopper{events};
    PipelineOptions options = small_files();
    options.progress = stopper.progress();
    auto stopped = quantize_checkpoint(in, out, w4(), options);
    if (stopped.ok()) break;
    REQUIRE(stopped.status().code() == Errc::cancelled);
    REQUIRE(stopped.status().text() == "cancelled; nothing was put under " + out +
                                           ", what is finished stays in " + out +
                                           ".partial and the next run goes on from there");
    REQUIRE_FALSE(exists(out));
    auto report = quantize_checkpoint(in, out, w4(), small_files());
    INFO(report.status().text());
    REQUIRE(report.ok());
    most_resumed = std::max(most_resumed, report->resumed_tensors);
    REQUIRE(contents(out) == expected);
    std::filesystem::remove_all(out);
  }
  REQUIRE(most_resumed == tiny_tensors(2).size());
}

TEST_CASE("resume: what doesn't belong to the run is found out") {
  const TempFolder temp;
  const std::string in = temp / "in", out = temp / "out";
  REQUIRE(make_checkpoint(in, tiny_tensors(2)));
  REQUIRE(quantize_checkpoint(in, temp / "expected", w4()).ok());
  const auto expected = contents(temp / "expected");
  const auto stop_late = [&](const Recipe& recipe) {
    Stopper stopper{20};
    PipelineOptions options;
    options.progress = stopper.progress();
    REQUIRE(quantize_checkpoint(in, out, recipe, options).status().code() == Errc::cancelled);
  };
  const auto finish = [&](PipelineOptions options = {}) {
    auto report = quantize_checkpoint(in, out, w4(), options);
    INFO(report.status().text());
    REQUIRE(report.ok());
    REQUIRE(contents(out) == expected);
    std::filesystem::remove_all(out);
    return report->resumed_tensors;
  };
  stop_late(w4());
  const std::size_t all = finish();
  REQUIRE(all >= 8);

  SECTION("a byte of a finished tensor changed: that tensor is done again") {
    stop_late(w4());
    const std::string weights = out + ".partial/model/model.safetensors";
    std::string bytes = slurp(weights);
    bytes[bytes.find('}', 8) + 3000] ^= 1;
    put(weights, bytes);
    const std::size_t resumed = finish();
    REQUIRE((resumed == all || resumed + 1 == all));
  }
  SECTION("all bytes of the weights gone") {
    stop_late(w4());
    put(out + ".partial/model/model.safetensors", "");
    REQUIRE(finish() < all);
  }
  SECTION("the journal cut in the middle of a line, or full of rubbish") {
    stop_late(w4());
    std::string journal = slurp(out + ".partial/journal.jsonl");
    put(out + ".partial/journal.jsonl", journal.substr(0, journal.size() - 10));
    REQUIRE(finish() == all - 1);
    stop_late(w4());
    put(out + ".partial/journal.jsonl",
        journal.substr(0, journal.find('\n') + 1) +
            "\x01\n{}\n{\"tensor\":1}\n{\"tensor\":\"model.norm.weight\",\"hashes\":"
            "[1],\"error\":[1,2,3,4,5,6,7]}\n");
    REQUIRE(finish() == 0);
  }
  SECTION("another recipe, another source or no wish to resume: from the start") {
    stop_late(*default_recipe("rtn", {.bits = 3, .group = 32}));
    REQUIRE(finish() == 0);
    stop_late(w4());
    REQUIRE(finish({.resume = false}) == 0);
    stop_late(w4());
    std::string weights = slurp(in + "/model.safetensors");
    ::usleep(20000);
    put(in + "/model.safetensors", weights);  // the same bytes, but written anew
    REQUIRE(finish() == 0);
  }
  SECTION("strange files in the partial folder don't get into the result") {
    stop_late(w4());
    put(out + ".partial/model/stray.bin", "x");
    REQUIRE(finish() == all);
  }
}

TEST_CASE("resume: a second run on the same output is refused while the first is at work") {
  const TempFolder temp;
  const std::string in = temp / "in", out = temp / "out";
  REQUIRE(make_checkpoint(in, tiny_tensors(1)));
  struct Inner {
    std::string in, out, text;
  } inner{in, out, {}};
  PipelineOptions options;
  options.progress = {[](void* user, const ProgressEvent&) {
                        auto* i = static_cast<Inner*>(user);
                        if (i->text.empty())
                          i->text = quantize_checkpoint(i->in, i->out, w4()).status().text();
                        return true;
                      },
                      &inner};
  REQUIRE(quantize_checkpoint(in, out, w4(), options).ok());
  REQUIRE(inner.text == out + ".partial: another process is at work on this output");
}

TEST_CASE("resume: a file size limit is an error with the file's name, and the old output stays") {
  const TempFolder temp;
  const std::string in = temp / "in", out = temp / "out";
  REQUIRE(make_checkpoint(in, tiny_tensors(2)));
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10000, 10000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto report = quantize_checkpoint(in, out, w4());
    if (report.ok() || report.status().code() != Errc::io_error) return 1;
    return report.status().text().find("model.safetensors: no room for its ") != std::string::npos ? 0 : 2;
  });
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  REQUIRE_FALSE(exists(out));
  REQUIRE(quantize_checkpoint(in, out, w4()).ok());
}

TEST_CASE("resume: on a disk of any size that is too small, an error; with room made, the same bytes") {
  const TempFolder temp;
  const std::string in = temp / "in", disk = temp / "disk", out = disk + "/out";
  REQUIRE(make_checkpoint(in, tiny_tensors(2)));
  REQUIRE(quantize_checkpoint(in, temp / "expected", w4(), small_files()).ok());
  const auto expected = contents(temp / "expected");
  std::filesystem::create_directories(disk);
  const int status = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
    int failed = 0, passed = 0;
    for (int kib = 4; kib <= 160; kib += 4) {
      if (::mount("none", disk.c_str(), "tmpfs", 0, ("size=" + std::to_string(kib) + "k").c_str()) != 0)
        return 77;
      auto report = quantize_checkpoint(in, out, w4(), small_files());
      if (report.ok()) {
        ++passed;
      } else {
        ++failed;
        if (report.status().code() != Errc::io_error || exists(out)) return 1;
        if (::mount("none", disk.c_str(), "tmpfs", MS_REMOUNT, "size=4m") != 0) return 77;
        if (!quantize_checkpoint(in, out, w4(), small_files()).ok()) return 2;
      }
      if (contents(out) != expected || exists(out + ".partial")) return 3;
      ::umount(disk.c_str());
    }
    return failed > 8 && passed > 2 ? 0 : 4;
  });
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    std::printf("SKIPPED resume on a small disk: this machine doesn't let a test mount one\n");
    return;
  }
  REQUIRE(WEXITSTATUS(status) == 0);
}
