#include "qf/io/safetensors_writer.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "io_posix.hpp"
#include "io_safetensors_header.hpp"
#include "qf/core/json.hpp"
#include "qf/io/convert.hpp"

namespace qf::io {
namespace {

Status invalid(std::initializer_list<std::string_view> parts) {
  return Status(Errc::invalid_argument, cat(parts));
}

// The reference orders by the enumeration of its types, from the widest down; types of one width keep that
// order too, so that files come out equal byte for byte.
int rank_of(DType type) {
  static constexpr DType kWidestFirst[] = {
      DType::u64,        DType::i64,    DType::f64,    DType::c64,    DType::f32, DType::u32,
      DType::i32,        DType::bf16,   DType::f16,    DType::u16,    DType::i16, DType::f8e5m2fnuz,
      DType::f8e4m3fnuz, DType::f8e8m0, DType::f8e4m3, DType::f8e5m2, DType::i8,  DType::u8,
      DType::f6e3m2,     DType::f6e2m3, DType::f4e2m1, DType::boolean};
  return static_cast<int>(std::find(std::begin(kWidestFirst), std::end(kWidestFirst), type) - kWidestFirst);
}

// JSON's own escapes; bytes beyond ASCII are checked to be UTF-8 by whoever calls.
Result<std::string> json_text(std::string_view text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    return invalid({printable(text), " is not valid UTF-8"});
  }
}

Result<std::string> header_of(const std::vector<const TensorSpec*>& order, const Metadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    std::map<std::string_view, std::string_view> sorted;
    for (const auto& [key, value] : metadata)
      if (!sorted.emplace(key, value).second) return invalid({"metadata ", printable(key), " stands twice"});
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : sorted) {
      QF_TRY_ASSIGN(const std::string name, json_text(key));
      QF_TRY_ASSIGN(const std::string shown, json_text(value));
      text += cat({text.back() == '{' ? "" : ",", name, ":", shown});
    }
    text += "}";
  }
  std::uint64_t begin = 0;
  for (const TensorSpec* tensor : order) {
    QF_TRY_ASSIGN(const std::string name, json_text(tensor->name));
    QF_TRY_ASSIGN(const std::uint64_t bytes, stored_bytes(*tensor));
    text += cat(
        {text.size() == 1 ? "" : ",", name, ":{\"dtype\":\"", dtype_name(tensor->dtype), "\",\"shape\":["});
    for (std::size_t d = 0; d < tensor->shape.size(); ++d) text += (d ? "," : "") + num(tensor->shape[d]);
    text += cat({"],\"data_offsets\":[", num(begin), ",", num(begin + bytes), "]}"});
    begin += bytes;
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > detail::kMaxSafetensorsHeader)
    return invalid({"the header takes ", num(text.size()), " bytes, at most ",
                    num(detail::kMaxSafetensorsHeader), " allowed; spread the tensors over several files"});
  return text;
}

Status check_name(const std::string& name) {
  if (name.empty() || name == "__metadata__") return invalid({"a tensor can't be named ", printable(name)});
  for (char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return invalid({"tensor ", printable(name), ": control bytes in the name"});
  return {};
}

}  // namespace

Result<std::uint64_t> stored_bytes(const TensorSpec& tensor) {
  std::uint64_t elements = 1;
  for (std::int64_t d : tensor.shape)
    if (d < 0 || __builtin_mul_overflow(elements, static_cast<std::uint64_t>(d), &elements))
      return invalid({"tensor ", printable(tensor.name), ": its shape is negative or overflows"});
  const auto bytes = stored_bytes(tensor.dtype, elements);
  if (!bytes.ok()) return invalid({"tensor ", printable(tensor.name), ": ", bytes.status().text()});
  return *bytes;
}

Result<SafetensorsLayout> layout_safetensors(std::span<const TensorSpec> tensors, const Metadata& metadata) {
  try {
    SafetensorsLayout layout;
    std::vector<const TensorSpec*> order;
    for (const TensorSpec& tensor : tensors) {
      QF_TRY(check_name(tensor.name));
      order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(), [](const TensorSpec* a, const TensorSpec* b) {
      const int ra = rank_of(a->dtype), rb = rank_of(b->dtype);
      return ra != rb ? ra < rb : a->name < b->name;
    });
    for (const TensorSpec* tensor : order) {
      QF_TRY_ASSIGN(const std::uint64_t bytes, stored_bytes(*tensor));
      SafetensorsLayout::Slot slot{tensor->dtype, layout.data_bytes, 0};
      if (__builtin_add_overflow(layout.data_bytes, bytes, &layout.data_bytes))
        return invalid({"the tensors' bytes overflow 64 bits"});
      slot.end = layout.data_bytes;
      if (!layout.slots.emplace(tensor->name, slot).second)
        return invalid({"tensor ", printable(tensor->name), " stands twice"});
    }
    QF_TRY_ASSIGN(const std::string header, header_of(order, metadata));
    const std::uint64_t length = header.size();
    layout.head.assign(reinterpret_cast<const char*>(&length), sizeof length);
    layout.head += header;
    for (auto& [name, slot] : layout.slots) slot.begin += layout.head.size(), slot.end += layout.head.size();
    return layout;
  } catch (const std::bad_alloc&) {
    return detail::no_memory({"no memory for the header"});
  }
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    std::span<const TensorSpec> tensors,
                                                    const Metadata& metadata) {
  auto layout = layout_safetensors(tensors, metadata);
  if (!layout.ok()) return layout.status().at(path);
  SafetensorsWriter writer;
  QF_TRY_ASSIGN(writer.file_, AtomicFile::create(path));
  QF_TRY(writer.file_.write(layout->head));
  writer.slots_ = std::move(layout->slots);
  writer.data_bytes_ = layout->data_bytes;
  return writer;
}

Status SafetensorsWriter::write(std::string_view name, std::span<const std::byte> piece) {
  const auto at = slots_.find(name);
  if (at == slots_.end()) return invalid({path(), ": tensor ", printable(name), " was not declared"});
  SafetensorsLayout::Slot& slot = at->second;
  if (piece.size() > slot.end - slot.begin)
    return invalid({path(), ": tensor ", printable(name), ": ", num(piece.size() - (slot.end - slot.begin)),
                    " bytes more than declared"});
  QF_TRY(file_.write_at(slot.begin, piece));
  slot.begin += piece.size();
  return {};
}

Status SafetensorsWriter::write_f32(std::string_view name, std::span<const float> piece) {
  const auto at = slots_.find(name);
  if (at == slots_.end()) return invalid({path(), ": tensor ", printable(name), " was not declared"});
  std::array<std::byte, 65536> buffer;
  const auto width = static_cast<std::size_t>(dtype_bits(at->second.dtype)) / 8;
  while (!piece.empty()) {
    const std::size_t count = std::min(piece.size(), buffer.size() / std::max<std::size_t>(width, 1));
    const std::span bytes(buffer.data(), count * width);
    const Status status = encode_f32(at->second.dtype, piece.first(count), bytes);
    if (!status.ok()) return status.at(cat({path(), ": tensor ", printable(name)}));
    QF_TRY(write(name, bytes));
    piece = piece.subspan(count);
  }
  return {};
}

Status SafetensorsWriter::commit() {
  for (const auto& [name, slot] : slots_)
    if (slot.begin != slot.end)
      return invalid({path(), ": tensor ", printable(name), ": ", num(slot.end - slot.begin),
                      " bytes are still to be written"});
  return file_.commit();
}

std::string shard_name(std::int64_t shard, std::int64_t count) {
  const auto five = [](std::int64_t value) {
    const std::string digits = num(value);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  return "model-" + five(shard + 1) + "-of-" + five(count) + ".safetensors";
}

Status write_shard_index(const std::string& folder, const std::map<std::string, std::string>& file_of_tensor,
                         std::uint64_t total_bytes, const Metadata& metadata) {
  const std::string path = folder + "/model.safetensors.index.json";
  try {
    Json json;
    for (const auto& [key, value] : metadata) json["metadata"][key] = value;
    json["metadata"]["total_size"] = total_bytes;
    json["weight_map"] = file_of_tensor;
    return write_file(path, json.dump(2) + "\n");
  } catch (const Json::exception&) {
    return invalid({path, ": a name is not valid UTF-8"});
  } catch (const std::bad_alloc&) {
    return detail::no_memory({path, ": no memory for the index"});
  }
}

}  // namespace qf::io
