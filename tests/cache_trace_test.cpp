#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "qf/cache/trace.hpp"

using namespace qf;
using namespace qf::cache;

namespace {

Trace good(std::string_view text) {
  auto trace = parse_trace(text, "t");
  INFO(trace.status().text());
  REQUIRE(trace.ok());
  return std::move(*trace);
}

void refused(std::string_view text, const std::string& message) {
  const auto trace = parse_trace(text, "some.jsonl");
  CAPTURE(std::string(text.substr(0, 200)), message);
  REQUIRE(!trace.ok());
  CHECK(trace.status().code() == Errc::bad_format);
  CHECK(trace.status().text().find(message) != std::string::npos);
}

std::vector<std::uint32_t> request(const Trace& trace, std::size_t r) {
  const auto blocks = trace.request(r);
  return {blocks.begin(), blocks.end()};
}

}  // namespace

TEST_CASE("trace: the three formats") {
  const Trace mooncake = good(
      "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [46, 47]}\r\n"
      "\n{\"hash_ids\": [46, 18446744073709551615]}\n{\"hash_ids\": []}\n{\"hash_ids\": [46, 47, 9]}");
  CHECK(mooncake.format == "mooncake");
  REQUIRE(mooncake.requests() == 3);
  CHECK(mooncake.unique() == 4);
  CHECK(request(mooncake, 0) == std::vector<std::uint32_t>{0, 1});
  CHECK(request(mooncake, 1) == std::vector<std::uint32_t>{0, 2});
  CHECK(request(mooncake, 2) == std::vector<std::uint32_t>{0, 1, 3});
  CHECK(mooncake.parents == std::vector<std::uint32_t>{Trace::kNone, 0, 0, 1});

  const Trace azure = good(
      "\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,1025,10\n,0,1\n,512,1\n");
  CHECK(azure.format == "azure");
  REQUIRE(azure.requests() == 2);
  CHECK(request(azure, 0) == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(request(azure, 1) == std::vector<std::uint32_t>{3});
  CHECK(azure.parents[2] == 1);
  const auto small_blocks = parse_trace("ContextTokens\n1025\n", "t", 16);
  REQUIRE(small_blocks.ok());
  CHECK(small_blocks->unique() == 65);

  const Trace plain = good("# a comment\n1 2,3\t4 # more\n\n  1 2\n9\n#\n");
  CHECK(plain.format == "plain");
  REQUIRE(plain.requests() == 3);
  CHECK(request(plain, 0) == std::vector<std::uint32_t>{0, 1, 2, 3});
  CHECK(request(plain, 1) == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("trace: equal ids behind different prefixes are different blocks") {
  const Trace trace = good("1 5\n2 5\n5 5 5\n1 5\n");
  CHECK(trace.unique() == 7);
  CHECK(request(trace, 0) == request(trace, 3));
  CHECK(request(trace, 2) == std::vector<std::uint32_t>{4, 5, 6});
}

TEST_CASE("trace: hostile files are refused by line") {
  refused("", "some.jsonl: no requests");
  refused("\n \n# nothing\n", "some.jsonl: no requests");
  refused("{\"hash_ids\": [1]}\n{\"hash_ids\": [1, -2]}\n", "some.jsonl:2: \"hash_ids\" holds '-2'");
  refused("{\"hash_ids\": [1.5]}\n", "some.jsonl:1: \"hash_ids\" holds '1.5'");
  refused("{\"hash_ids\": [18446744073709551616]}\n", "some.jsonl:1");
  refused("{\"hash_ids\": [\"\\u001b[31m\"]}\n", "some.jsonl:1: \"hash_ids\" holds");
  refused("{\"hash_ids\": [[1]]}\n", "some.jsonl:1");
  refused("{\"hash_ids\": 7}\n", "some.jsonl:1: an object with an array \"hash_ids\" expected");
  refused("{\"ids\": [7]}\n", "some.jsonl:1: an object with an array \"hash_ids\" expected");
  refused("{\"hash_ids\": [1]}\n[1]\n", "some.jsonl:2: an object with an array");
  refused("{\"hash_ids\": [1]}\n{\"hash_ids\": [1\n", "some.jsonl:2: not valid JSON");
  refused("{\"hash_ids\": [1], \"hash_ids\": [2]}\n", "stands twice");
  refused("{\"hash_ids\": " + std::string(100000, '[') + "\n", "some.jsonl:1: JSON nested deeper");
  refused("1 2\n3 x\n", "some.jsonl:2: 'x' found, an integer");
  refused("1 2\n3 -4\n", "some.jsonl:2: '-4' found");
  refused("1 99999999999999999999\n", "some.jsonl:1: '99999999999999999999' found");
  refused("1 0x10\n", "some.jsonl:1: '0x10' found");
  refused("TIMESTAMP,Tokens\n1,2\n", "some.jsonl:1: 'TIMESTAMP,Tokens' found; a trace is");
  refused("TIMESTAMP,ContextTokens\n", "some.jsonl: no requests");
  refused("TIMESTAMP,ContextTokens\n1\n", "some.jsonl:2: ContextTokens is ''");
  refused("TIMESTAMP,ContextTokens\n1,many\n", "some.jsonl:2: ContextTokens is 'many'");
  refused("TIMESTAMP,ContextTokens\n1,4294967297\n", "some.jsonl:2: ContextTokens is '4294967297'");
  refused(std::string("1 \0 2\n", 6), "some.jsonl:1");
  refused("\x1f\x8b\x08\x00 gzip\n", "some.jsonl:1: '\\x1f\\x8b");
  CHECK(parse_trace("1\n", "t", 0).status().code() == Errc::invalid_argument);
}

TEST_CASE("trace: files") {
  CHECK(read_trace("no/such.trace").status().code() == Errc::not_found);
  const std::string path = "cache_trace_test.tmp";
  std::ofstream(path) << "1 2 3\n1 2 4\n";
  const auto trace = read_trace(path);
  REQUIRE(trace.ok());
  CHECK(trace->unique() == 4);
  std::ofstream(path) << "1 2 3\n1 2 ?\n";
  CHECK(read_trace(path).status().text().find(path + ":2: '?' found") != std::string::npos);
  std::remove(path.c_str());
}
