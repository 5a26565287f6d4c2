// Damaged models: random byte flips, runs and truncations. Import must answer with a model or an error, whatever the bytes.
//   OCTAVO_FUZZ_SEED=n   first seed (default 1)       OCTAVO_FUZZ_ROUNDS=n   rounds a file (default 400; make test-long: more)
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include "ir/verify.h"
#include "onnx/build_model.h"

namespace octavo::onnx {
namespace {

using namespace testing;

std::uint64_t number_from(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

std::string damaged(std::string bytes, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng() % std::max<std::size_t>(1, n)); };
  const std::size_t edits = 1 + below(8);
  for (std::size_t e = 0; e < edits && !bytes.empty(); ++e) {
    const std::size_t at = below(bytes.size());
    switch (below(7)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
      case 1: bytes[at] = static_cast<char>(rng()); break;
      case 2: bytes[at] = static_cast<char>(below(2) ? 0xff : 0x7f); break;
      case 3: bytes.erase(at, 1 + below(16)); break;
      case 4: bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(64))); break;
      case 5: bytes[at] = 0; break;
      default:
        if (below(8) == 0) bytes.resize(at);
        break;
    }
  }
  return bytes;
}

constexpr std::int64_t kExtremes[] = {
    0,           1,        -1,       2,        3,         4,         -2,           7, 16, 255, 256, 65536, (1L << 31) - 1, 1L << 31,
    -(1L << 31), 1L << 33, 1L << 40, 1L << 62, INT64_MAX, INT64_MIN, INT64_MIN + 1};

/// Edits the parsed model instead of its bytes, so that almost every edit reaches a handler.
std::string edited(const std::string& bytes, std::uint64_t seed, const std::vector<std::string>& operators) {
  std::mt19937_64 rng(seed);
  const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(std::max(1, n))); };
  const auto extreme = [&] { return kExtremes[below(std::size(kExtremes))]; };
  pb::ModelProto model;
  if (!model.ParseFromString(bytes)) return bytes;
  pb::GraphProto& g = *model.mutable_graph();
  std::vector<std::string> names{""};
  for (const auto& n : g.node()) names.insert(names.end(), n.output().begin(), n.output().end());
  for (const auto& t : g.initializer()) names.push_back(t.name());
  for (const auto& i : g.input()) names.push_back(i.name());
  const int edits = 1 + below(4);
  for (int e = 0; e < edits; ++e) {
    pb::NodeProto& n = *g.mutable_node(below(g.node_size()));
    pb::TensorProto& t = *g.mutable_initializer(below(g.initializer_size()));
    switch (below(9)) {
      case 0:
      case 1:
      case 2:
        if (n.attribute_size() == 0) break;
        {
          pb::AttributeProto& a = *n.mutable_attribute(below(n.attribute_size()));
          a.set_i(extreme());
          if (a.ints_size() > 0) a.set_ints(below(a.ints_size()), extreme());
          if (below(6) == 0) a.add_ints(extreme());
          if (below(12) == 0) a.clear_ints();
          if (a.has_f()) a.set_f(below(2) ? -1e30F : 0.0F);
        }
        break;
      case 3:
        if (n.input_size() > 0)
          n.set_input(below(n.input_size()), names[static_cast<std::size_t>(below(static_cast<int>(names.size())))]);
        break;
      case 4: n.set_op_type(operators[static_cast<std::size_t>(below(static_cast<int>(operators.size())))]); break;
      case 5:
        if (t.data_type() == kS64 && t.raw_data().size() >= 8) {
          const std::int64_t v = extreme();
          t.mutable_raw_data()->replace(8 * static_cast<std::size_t>(below(static_cast<int>(t.raw_data().size() / 8))), 8,
                                        reinterpret_cast<const char*>(&v), 8);
        } else if (!t.raw_data().empty()) {
          (*t.mutable_raw_data())[static_cast<std::size_t>(below(static_cast<int>(t.raw_data().size())))] =
              static_cast<char>(rng());
        }
        break;
      case 6:
        if (t.dims_size() > 0) t.set_dims(below(t.dims_size()), extreme());
        break;
      case 7: {
        auto& shape = *g.mutable_input(below(g.input_size()))->mutable_type()->mutable_tensor_type()->mutable_shape();
        if (shape.dim_size() > 0) shape.mutable_dim(below(shape.dim_size()))->set_dim_value(1 + below(9));
        break;
      }
      default:
        if (below(2))
          n.add_input(names[static_cast<std::size_t>(below(static_cast<int>(names.size())))]);
        else
          model.mutable_opset_import(0)->set_version(7 + below(22));
    }
  }
  return model.SerializeAsString();
}

template <class Damage>
void hammer(const std::string& bytes, const std::string& label, std::uint64_t rounds, Damage damage) {
  const std::uint64_t first = number_from("OCTAVO_FUZZ_SEED", 1);
  std::uint64_t imported = 0;
  for (std::uint64_t seed = first; seed < first + rounds; ++seed) {
    const std::string bad = damage(bytes, seed);
    SCOPED_TRACE(fmt::format("{}: repeat with OCTAVO_FUZZ_SEED={} OCTAVO_FUZZ_ROUNDS=1", label, seed));
    if (std::getenv("OCTAVO_FUZZ_VERBOSE")) fprintf(stderr, "%s seed %llu\n", label.c_str(), static_cast<unsigned long long>(seed));
    const auto m = import_bytes({reinterpret_cast<const std::byte*>(bad.data()), bad.size()}, {}, "");
    if (m) {
      ++imported;
      const auto status = ir::verify(m->graph);
      EXPECT_TRUE(status) << status.error().message;
    } else {
      EXPECT_FALSE(m.error().message.empty());
      EXPECT_NE(static_cast<int>(m.error().kind), static_cast<int>(ErrorKind::internal)) << m.error().message;
    }
  }
  std::cout << label << ": " << rounds << " damaged files from seed " << first << ", " << imported << " still imported\n";
}

/// A little of everything, so that small files reach many handlers.
ModelBuilder sampler(int opset) {
  ModelBuilder b(opset);
  b.input("x", {1, 4, 8, 8}).output("y").output("z");
  b.ramp("w", {8, 2, 3, 3}).ramp("b", {8}).ramp("fc", {10, 8}).floats("s", {}, {0.1F}).constant<std::uint8_t>("u", {}, {3}, kU8);
  b.floats("bn", {8}, {1, 1, 1, 1, 1, 1, 1, 1}).ints("axes", {2, 3}).ints("shape", {1, -1}).floats("scales", {4}, {1, 1, 2, 2});
  b.node("QuantizeLinear", {"x", "s", "u"}, {"q"});
  b.node("DequantizeLinear", {"q", "s", "u"}, {"d"});
  b.node("Conv", {"d", "w", "b"}, {"c"}).i("group", 2).ints("pads", {1, 1, 1, 1}).ints("strides", {1, 1}).ints("dilations", {1, 1});
  b.node("BatchNormalization", {"c", "bn", "b", "b", "bn"}, {"n"}).f("epsilon", 0.01F);
  b.node("LeakyRelu", {"n"}, {"l"}).f("alpha", 0.1F);
  b.node("MaxPool", {"l"}, {"m"}).ints("kernel_shape", {3, 3}).ints("strides", {2, 2}).i("ceil_mode", 1).s("auto_pad", "NOTSET");
  b.node("AveragePool", {"m"}, {"a"}).ints("kernel_shape", {2, 2}).ints("pads", {1, 0, 0, 1}).i("count_include_pad", 1);
  b.node("Resize", {"a", "", "scales"}, {"r"}).s("mode", "nearest").s("nearest_mode", "floor");
  b.node("Resize", {"a", "", "scales"}, {"rl"}).s("mode", "linear");
  b.node("Transpose", {"r"}, {"t"}).ints("perm", {0, 2, 3, 1});
  b.node("Split", {"t"}, {"t1", "t2"}).i("axis", 3).i("num_outputs", 2);
  b.node("Concat", {"t1", "t2", "t1"}, {"cc"}).i("axis", -1);
  b.node("Slice", {"cc", "axes", "axes"}, {"sl"});
  b.node("Reshape", {"cc", "shape"}, {"flat"});
  b.node("Softmax", {"flat"}, {"y"}).i("axis", -1);
  b.node("GlobalAveragePool", {"rl"}, {"g"});
  b.node("Flatten", {"g"}, {"f"}).i("axis", 1);
  b.node("Gemm", {"f", "fc"}, {"h"}).i("transB", 1).f("alpha", 0.5F);
  b.node("Shape", {"h"}, {"hs"});
  b.node("ConstantOfShape", {"hs"}, {"zeros"});
  b.node("Pad", {"h", "hs"}, {"p"});
  b.node("Add", {"h", "zeros"}, {"z"});
  return b;
}

TEST(Fuzz, SmallModels) {
  const std::uint64_t rounds = number_from("OCTAVO_FUZZ_ROUNDS", 400);
  for (const int opset : {18, 21, 28}) {
    const ModelBuilder b = sampler(opset);
    ASSERT_EQ(b.error(), "");
    hammer(b.bytes(), fmt::format("sampler opset {}", opset), rounds * 5, [&](const std::string& bytes, std::uint64_t seed) {
      return damaged(bytes, seed * 31 + static_cast<std::uint64_t>(opset));
    });
  }
}

TEST(Fuzz, EditedModels) {
  const std::uint64_t rounds = number_from("OCTAVO_FUZZ_ROUNDS", 400);
  std::vector<std::string> operators = supported_operators();
  for (std::string& op : operators) op = op.substr(op.rfind('.') + 1);
  for (const int opset : {18, 23}) {
    hammer(sampler(opset).bytes(), fmt::format("edited sampler opset {}", opset), rounds * 10,
           [&](const std::string& bytes, std::uint64_t seed) {
             return edited(bytes, seed * 31 + static_cast<std::uint64_t>(opset), operators);
           });
  }
}

TEST(Fuzz, EveryTruncation) {
  const std::string bytes = sampler(18).bytes();
  int imported = 0;
  for (std::size_t n = 0; n < bytes.size(); n += n < 2000 ? 1 : 17) {
    const auto m = import_bytes({reinterpret_cast<const std::byte*>(bytes.data()), n}, {}, "");
    imported += m.has_value();
  }
  EXPECT_LT(imported, 3) << "a truncated model lacks its outputs or its opset";
}

TEST(Fuzz, RealModels) {
  const char* set = std::getenv("OCTAVO_TEST_DATA");
  const std::filesystem::path folder =
      (set ? std::filesystem::path(set) : std::filesystem::path(OCTAVO_SOURCE_DIR) / "../shared") / "models";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << folder;
  const std::uint64_t rounds = number_from("OCTAVO_FUZZ_ROUNDS", 400);
  for (const char* file : {"tinycnn_cifar_qoperator.onnx", "tinycnn_cifar_fp32.onnx", "yunet_120x160.onnx"}) {
    std::ifstream in(folder / file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    ASSERT_FALSE(bytes.empty()) << file;
    hammer(bytes, file, rounds / 4, damaged);
  }
}

}  // namespace
}  // namespace octavo::onnx
