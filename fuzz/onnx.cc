// Import of any bytes: a model or an error, within 2 GiB and 5 s (libFuzzer's limits, scripts/fuzz.sh).
#include <cstdlib>
#include <cstring>
#include <string>

#include "fuzz/mutate_model.h"
#include "ir/verify.h"
#include "onnx/diagnosis/diagnose.h"
#include "onnx/import/import.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = octavo::onnx::Parsed::bytes({reinterpret_cast<const std::byte*>(data), size}, "");
  if (!parsed) {
    if (parsed.error().message.empty() || parsed.error().kind == octavo::ErrorKind::internal) std::abort();
    return 0;
  }
  const auto model = octavo::onnx::import_model(*parsed);
  if (model && !octavo::ir::verify(model->graph)) std::abort();
  if (!model && (model.error().message.empty() || model.error().kind == octavo::ErrorKind::internal)) std::abort();
  (void)octavo::onnx::diagnose(*parsed);
  return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

/// Half of the changes know the message.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::string out = octavo::fuzz::mutate_model(bytes, bytes, seed);
  if (out.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}
