#include "region/precision.h"

#include <utility>

namespace octavo::region {
namespace {

constexpr std::pair<Work, std::string_view> kWorks[] = {
    {Work::none, ""},     {Work::int8, "int8"},         {Work::tf32, "tf32"},   {Work::quantize, "float32->int8"},
    {Work::move, "move"}, {Work::transfer, "transfer"}, {Work::mixed, "mixed"},
};
/// Types that users name, where the IR's names are shorter.
constexpr std::pair<ir::DType, std::string_view> kTypes[] = {
    {ir::DType::f32, "float32"}, {ir::DType::bf16, "bfloat16"}, {ir::DType::f16, "float16"}};
constexpr std::string_view kNarrowing = "float32->";

}  // namespace

std::string to_string(const Precision& precision) {
  if (precision.work == Work::narrow) return std::string(kNarrowing) + to_string(Precision(precision.type));
  if (precision.work == Work::type) {
    for (const auto& [type, name] : kTypes) {
      if (type == precision.type) return std::string(name);
    }
    return std::string(ir::name_of(precision.type));
  }
  for (const auto& [work, name] : kWorks) {
    if (work == precision.work) return std::string(name);
  }
  return "";
}

std::optional<Precision> find_precision(std::string_view text) {
  for (const auto& [work, name] : kWorks) {
    if (name == text) return Precision(work);
  }
  for (const auto& [type, name] : kTypes) {
    if (name == text) return Precision(type);
    if (type != ir::DType::f32 && text.starts_with(kNarrowing) && text.substr(kNarrowing.size()) == name)
      return Precision::narrowing_to(type);
  }
  ir::DType type{};
  if (!ir::parse_dtype(text, type) || to_string(type) != text) return std::nullopt;
  return Precision(type);
}

}  // namespace octavo::region
