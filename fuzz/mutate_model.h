// ONNX files as an attacker would damage them: bytes, and fields of the parsed message. Shared by the fast fuzz test and libFuzzer.
#pragma once

#include <cstdint>
#include <string>

namespace octavo::fuzz {

/// One to five changes of the model `bytes`, determined by `seed`: bytes flipped, cut or copied; parts of `other` (another model)
/// spliced in; extents of 2^63 and below 0; data too short or too long for its type; wrong types; names defined twice; cycles;
/// deep branches; functions that call themselves or double at each level; external data at hostile places. Bytes that are no model
/// are only changed as bytes.
[[nodiscard]] std::string mutate_model(const std::string& bytes, const std::string& other, std::uint64_t seed);

}  // namespace octavo::fuzz
