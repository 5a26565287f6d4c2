// Engines for a GPU through the public interface, where there is no GPU: the emulation runs their kernels (api/used_gpu.h), and says which machine code it got.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "api/used_gpu.h"
#include "base/read_file.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/provider.h"
#include "engine/file.h"
#include "octavo/octavo.h"

namespace octavo::testing {

/// Stands in the texts of kernels, which are the emulation's machine code, where a test has changed a file.
inline constexpr std::string_view kKernelWord = "OCTAVO_KERNEL(", kPoison = "OCTAVO_POISON(";

class GpuHereTest : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    std::string pattern = (std::filesystem::temp_directory_path() / "octavo_gpu_here_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    file_ = (folder_ / "e.octavo").string();
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static BuildOptions options(const std::string& device) {
    BuildOptions o;
    o.device = device, o.effort = 0, o.threads = 1, o.timing_cache = "none";
    return o;
  }
  /// The batches from 1 to 8 in one file.
  static BuildOptions ranged(const std::string& device) {
    BuildOptions o = options(device);
    o.profiles["image"] = {{1, 1, 16, 16}, {4, 1, 16, 16}, {8, 1, 16, 16}};
    return o;
  }
  /// Plans for two batches in one file.
  void save_set(const std::string& device) const {
    const Engine open = Engine::build(kDigits, options(device));
    for (const std::int64_t n : {1, 3}) (void)open.at({{"image", {n, 1, 16, 16}}});
    open.save(file_);
  }

  /// Every section of the file is given to `change`, and the file is written again.
  void rewrite(const std::function<void(std::string_view name, std::string& bytes)>& change) const {
    const auto bytes = read_file(file_);
    ASSERT_TRUE(bytes);
    auto all = engine::read_container(*bytes, file_);
    ASSERT_TRUE(all) << all.error().message;
    std::vector<std::string> contents;
    contents.reserve(all->sections.size());
    for (engine::Section& s : all->sections) {
      std::string& text = contents.emplace_back(reinterpret_cast<const char*>(s.bytes.data()), s.bytes.size());
      change(s.name, text);
      s.bytes = std::as_bytes(std::span(text));
    }
    ASSERT_TRUE(engine::write_file(file_, all->sections, all->by));
  }

  static std::vector<float> image(std::int64_t n) {
    std::vector<float> x(static_cast<std::size_t>(n) * 256);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 101;
    return x;
  }
  static std::vector<std::byte> run(const Engine& engine, std::int64_t n) {
    const std::vector<float> x = image(n);
    return engine.run({{"image", view(x, {n, 1, 16, 16})}}).at("head").bytes;
  }
  /// The engine gives the bits of the CPU.
  static void expect_runs(const Engine& engine, std::int64_t n) {
    EXPECT_EQ(run(engine, n), run(Engine::build(kDigits, options("cpu")), n)) << n << " images";
  }

  /// Has the loader, or the emulated GPU, got machine code with the word since the last call?
  bool saw(std::string_view word) const {
    const std::lock_guard lock(mutex_);
    const bool any = std::any_of(codes_.begin(), codes_.end(), [&](const std::string& c) { return c.find(word) != c.npos; });
    codes_.clear();
    return any;
  }

  inline static const std::string kDigits = OCTAVO_SOURCE_DIR "/examples/digits/digits_qdq.onnx";
  std::filesystem::path folder_;
  std::string file_;

 private:
  static Result<std::string> as_text(std::string_view text) { return std::string(text); }  // the emulation runs texts
  const cuda::Target target_{"sm_80", 108, 163 * 1024};
  mutable std::mutex mutex_;
  mutable std::vector<std::string> codes_;
  const std::unique_ptr<const region::Device> device_ = emulated_device();
  const std::unique_ptr<const region::Provider> provider_ = cuda::make_provider(
      target_, as_text,
      [this](std::span<const std::byte> code, cuda::Architecture, std::span<const cuda::Launch* const>) -> Status {
        const std::lock_guard lock(mutex_);
        codes_.emplace_back(reinterpret_cast<const char*>(code.data()), code.size());
        return {};
      });
  const api::GpuScope scope_{
      {provider_.get(), device_.get(), [this](region::Plan& plan) { return cuda::remake_kernels(plan, target_, as_text, 1); }}};
};

}  // namespace octavo::testing
