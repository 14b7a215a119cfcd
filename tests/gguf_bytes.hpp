// GGUF files built by hand, right or wrong, byte by byte: independent of the library's own writer.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace qf::test {

class GgufBytes {
 public:
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::int64_t more_tensors = 0, more_keys = 0;  // lies about the counts
  std::uint64_t alignment = 32;                  // used for offsets and padding; no key is written for it

  // Appends the bytes of a number.
  template <class T>
  static void put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_string(std::string& to, std::string_view text) {
    put<std::uint64_t>(to, text.size());
    to += text;
  }

  // A key with a value of any bytes.
  void key(std::string_view name, std::uint32_t type, std::string_view raw) {
    put_string(keys_, name);
    put(keys_, type);
    keys_ += raw;
    ++key_count_;
  }
  template <class T>
  void key(std::string_view name, std::uint32_t type, T value) {
    std::string raw;
    put(raw, value);
    key(name, type, std::string_view(raw));
  }
  void text(std::string_view name, std::string_view value) {
    std::string raw;
    put_string(raw, value);
    key(name, 8, std::string_view(raw));
  }
  void texts(std::string_view name, const std::vector<std::string>& values) {
    std::string raw;
    put<std::uint32_t>(raw, 8);
    put<std::uint64_t>(raw, values.size());
    for (const std::string& v : values) put_string(raw, v);
    key(name, 9, std::string_view(raw));
  }
  template <class T>
  void numbers(std::string_view name, std::uint32_t element, const std::vector<T>& values) {
    std::string raw;
    put(raw, element);
    put<std::uint64_t>(raw, values.size());
    for (T v : values) put(raw, v);
    key(name, 9, std::string_view(raw));
  }
  void u32(std::string_view name, std::uint32_t value) { key(name, 4, value); }
  void f32(std::string_view name, float value) { key(name, 6, value); }

  void info(std::string_view name, const std::vector<std::int64_t>& ne, std::int32_t type,
            std::uint64_t offset) {
    put_string(infos_, name);
    put<std::uint32_t>(infos_, static_cast<std::uint32_t>(ne.size()));
    for (std::int64_t n : ne) put(infos_, n);
    put(infos_, type);
    put(infos_, offset);
    ++tensor_count_;
  }
  // `ne`: fastest dimension first, as in the file.
  void tensor(std::string_view name, const std::vector<std::int64_t>& ne, std::int32_t type,
              const std::vector<std::byte>& data) {
    info(name, ne, type, data_.size());
    data_.append(reinterpret_cast<const char*>(data.data()), data.size());
    data_.append((alignment - data_.size() % alignment) % alignment, '\0');
  }
  void floats(std::string_view name, const std::vector<std::int64_t>& ne, const std::vector<float>& values) {
    std::vector<std::byte> data(values.size() * 4);
    if (!values.empty()) std::memcpy(data.data(), values.data(), data.size());
    tensor(name, ne, 0, data);
  }
  void data(std::size_t bytes) { data_.append(bytes, '\0'); }

  std::string text() const {
    std::string all = magic;
    put(all, version);
    put(all, tensor_count_ + more_tensors);
    put(all, key_count_ + more_keys);
    all += keys_ + infos_;
    all.append((alignment - all.size() % alignment) % alignment, '\0');
    return all + data_;
  }
  std::vector<std::byte> bytes() const {
    const std::string all = text();
    std::vector<std::byte> out(all.size());
    std::memcpy(out.data(), all.data(), all.size());
    return out;
  }

 private:
  std::string keys_, infos_, data_;
  std::int64_t key_count_ = 0, tensor_count_ = 0;
};

}  // namespace qf::test
