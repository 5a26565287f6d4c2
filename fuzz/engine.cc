// Engine files. Half of the changes are made inside a section and under right checksums, so that they reach the plan, the constants
// and the kernels; what loads is run when it is small.
#include "engine/engine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"
#include "cpu/provider.h"
#include "engine/file.h"

namespace {

using octavo::engine::Engine;
using octavo::region::BufferKind;

void run(const std::shared_ptr<const Engine>& engine) {
  const auto& plan = engine->plan();
  std::int64_t total = plan.devices[octavo::region::kHost].arena_bytes;
  for (const auto& b : plan.buffers) total += b.bytes;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) total += static_cast<std::int64_t>(engine->host_kernel(i)->scratch_bytes());
  if (total > (1 << 22)) return;
  auto context = octavo::engine::Context::create(engine, 1);
  if (!context) std::abort();
  std::vector<std::vector<std::byte>> held;
  std::vector<const void*> in(plan.inputs.size(), &plan);
  std::vector<void*> out(plan.outputs.size(), nullptr);
  for (const auto& b : plan.buffers) {
    if (b.kind != BufferKind::input && b.kind != BufferKind::output) continue;
    held.emplace_back(static_cast<std::size_t>(b.bytes) + (b.bytes == 0 ? 1 : 0), std::byte{0x3d});
    if (b.kind == BufferKind::input)
      in[static_cast<std::size_t>(b.binding)] = held.back().data();
    else
      out[static_cast<std::size_t>(b.binding)] = held.back().data();
  }
  if (!(*context)->run(in, out)) std::abort();
}

/// An engine file of these sections: what engine::write_file writes, in memory. `head`: the header of the file that was changed.
std::string assemble(std::string_view head, const std::vector<octavo::engine::Section>& sections) {
  const auto put = [](std::string& s, std::size_t at, std::uint64_t v) { std::memcpy(s.data() + at, &v, 8); };
  const auto hash = [](std::string_view s) { return octavo::hash64(std::as_bytes(std::span(s))); };
  constexpr std::size_t kHeader = 64, kEntry = 64;
  std::string file(kHeader + sections.size() * kEntry, '\0');
  file.replace(0, kHeader, head);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const octavo::engine::Section& s = sections[i];
    const std::string_view bytes(reinterpret_cast<const char*>(s.bytes.data()), s.bytes.size());
    file.resize((file.size() + 64 + 63) / 64 * 64);
    const std::size_t at = kHeader + i * kEntry;
    file.replace(at, std::min<std::size_t>(s.name.size(), 23), s.name);
    put(file, at + 24, s.id);
    put(file, at + 32, file.size()), put(file, at + 40, bytes.size()), put(file, at + 48, hash(bytes));
    file += bytes;
  }
  file.resize((file.size() + 64 + 63) / 64 * 64);
  put(file, 32, file.size());
  put(file, 40, hash(std::string_view(file).substr(kHeader, sections.size() * kEntry)));
  put(file, 56, hash(std::string_view(file).substr(0, 56)));
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("engine", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  const auto engine = Engine::load(path, octavo::cpu::providers());
  if (engine) run(*engine);
  if (!engine && engine.error().message.empty()) std::abort();
  return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  auto sections = octavo::engine::read_sections({reinterpret_cast<const std::byte*>(data), size}, "");
  if (seed % 8 == 0 || !sections || sections->empty()) return LLVMFuzzerMutate(data, size, max_size);
  const std::string head(reinterpret_cast<const char*>(data), 64);
  auto& changed = (*sections)[seed / 16 % 3 == 0 ? seed / 64 % sections->size() : 0];  // the plan, mostly
  std::vector<std::uint8_t> bytes(changed.bytes.size() + 256);
  if (!changed.bytes.empty()) std::memcpy(bytes.data(), changed.bytes.data(), changed.bytes.size());
  bytes.resize(LLVMFuzzerMutate(bytes.data(), changed.bytes.size(), bytes.size()));
  changed.bytes = std::as_bytes(std::span(bytes));
  const std::string file = assemble(head, *sections);
  if (file.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, file.data(), file.size());
  return file.size();
}
