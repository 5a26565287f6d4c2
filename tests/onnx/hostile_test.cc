// Hostile ONNX files: import answers with a model or an error within 5 s of processor time and 2 GiB, whatever the file says. Each
// batch runs in a process of its own, so that a crash is one failure that names its file.
//   OCTAVO_FUZZ_SEED=n   first seed (default 1)   OCTAVO_FUZZ_FILES=n   mutated files (default 500; make test-long: 100000)
// Past 400 lines: one list of files made on purpose, each next to what it is told.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <set>

#include "fuzz/mutate_model.h"
#include "ir/verify.h"
#include "onnx/build_model.h"
#include "onnx/diagnosis/diagnose.h"
#include "onnx/hostile_files.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

using namespace testing;
namespace fs = std::filesystem;

std::uint64_t number_from(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

/// Every model of the corpus imports, so the row of each node outside of branches has lowered it: together they are the whole
/// table.
TEST(Hostile, TheCorpusReachesEveryImporter) {
  std::set<const OpRow*> reached;
  for (const std::string& bytes : corpus()) {
    pb::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(bytes));
    const auto imported = import_bytes({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, {}, "");
    ASSERT_TRUE(imported) << imported.error().message;
    for (const auto& n : model.graph().node()) reached.insert(find_row(n.domain(), n.op_type(), imported->opset));
  }
  for (const OpRow* row : all_rows()) {
    EXPECT_TRUE(reached.contains(row)) << row->domain << " " << row->type << " from opset " << row->since
                                       << " has no model in fuzz/corpus/onnx; add a case to tests/onnx/op_cases_wide.py and run "
                                          "fuzz/make_corpus.py";
  }
}

TEST(Hostile, MutatedFiles) {
  const std::vector<std::string> seeds = corpus();
  ASSERT_FALSE(seeds.empty());
  const std::uint64_t first = number_from("OCTAVO_FUZZ_SEED", 1);
  const std::uint64_t files = number_from("OCTAVO_FUZZ_FILES", std::getenv("OCTAVO_LONG") != nullptr ? 100000 : 500);
  Progress total{};
  constexpr std::uint64_t kBatch = 500;  // bounds what a child's heap collects
  for (std::uint64_t at = first; at < first + files; at += kBatch) {
    run_limited(
        at, std::min(at + kBatch, first + files),
        [&](std::uint64_t i) { return fuzz::mutate_model(seeds[i % seeds.size()], seeds[i * 7919 % seeds.size()], i); },
        [](std::uint64_t i) { return fmt::format("repeat with OCTAVO_FUZZ_SEED={} OCTAVO_FUZZ_FILES=1", i); }, total);
  }
  std::printf("%llu mutated files from seed %llu: %llu imported, %llu refused\n", static_cast<unsigned long long>(files),
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(total.imported),
              static_cast<unsigned long long>(total.refused));
  EXPECT_EQ(total.errors, 0U);
  if (files >= 100) {
    EXPECT_GT(total.imported, 0U);
    EXPECT_GT(total.refused, total.imported / 2);
  }
}

/// Files made on purpose, and what each is told.
struct Case {
  std::string name;
  std::function<void(pb::ModelProto&)> change;
  std::string told;  ///< part of the error; "" where import may also succeed
};

pb::ModelProto small() {
  ModelBuilder b(18);
  b.input("x", {1, 4, 8, 8}).output("y").ramp("w", {8, 4, 3, 3}).ramp("b", {8});
  b.node("Conv", {"x", "w", "b"}, {"c"}).ints("pads", {1, 1, 1, 1}).name("conv");
  b.node("Relu", {"c"}, {"y"}).name("relu");
  return b.proto;
}

pb::TensorProto& weights(pb::ModelProto& m) {
  return *m.mutable_graph()->mutable_initializer(0);
}

/// A chain of functions, each calling the next `calls` times; the last one calls the first or Relu.
void chain(pb::ModelProto& m, int count, int calls, bool cyclic) {
  auto* import = m.add_opset_import();
  import->set_domain("bomb"), import->set_version(1);
  for (int i = 0; i < count; ++i) {
    auto* f = m.add_functions();
    f->set_name(fmt::format("f{}", i)), f->set_domain("bomb"), f->add_input("t0"), f->add_output(fmt::format("t{}", calls));
    for (int k = 0; k < calls; ++k) {
      auto* n = f->add_node();
      const bool end = i + 1 == count && !cyclic;
      n->set_op_type(end ? "Relu" : fmt::format("f{}", i + 1 == count ? 0 : i + 1));
      if (!end) n->set_domain("bomb");
      n->add_input(fmt::format("t{}", k)), n->add_output(fmt::format("t{}", k + 1));
    }
  }
  auto* n = m.mutable_graph()->mutable_node(1);
  n->set_op_type("f0"), n->set_domain("bomb");
}

/// A function whose `copies` nodes If take their branches from an attribute of the call, which is a graph that calls the function
/// again, `levels` deep.
void graphs_in_calls(pb::ModelProto& m, int levels, int copies, std::size_t text) {
  auto* import = m.add_opset_import();
  import->set_domain("bomb"), import->set_version(1);
  auto* f = m.add_functions();
  f->set_name("f"), f->set_domain("bomb"), f->add_input("a"), f->add_output("b"), f->add_attribute("body");
  for (int k = 0; k < copies; ++k) {
    auto* n = f->add_node();
    n->set_op_type("If"), n->add_input("a"), n->add_output(k == 0 ? "b" : fmt::format("b{}", k));
    for (const char* key : {"then_branch", "else_branch"}) {
      auto* a = n->add_attribute();
      a->set_name(key), a->set_ref_attr_name("body"), a->set_type(pb::AttributeProto::GRAPH);
    }
  }
  pb::NodeProto call;
  call.set_op_type("Relu"), call.add_input("x"), call.add_output("y");
  for (int i = 0; i < levels; ++i) {
    pb::NodeProto outer;
    outer.set_op_type("f"), outer.set_domain("bomb"), outer.add_input("x"), outer.add_output("y");
    auto* a = outer.add_attribute();
    a->set_name("body"), a->set_type(pb::AttributeProto::GRAPH), a->mutable_g()->set_name(std::string(text, 'n'));
    *a->mutable_g()->add_node() = call;
    a->mutable_g()->add_output()->set_name("y");
    call = outer;
  }
  *m.mutable_graph()->mutable_node(1) = call;
}

void nest(pb::ModelProto& m, int levels) {
  for (int i = 0; i < levels; ++i) {
    pb::GraphProto inner;
    for (auto& n : *m.mutable_graph()->mutable_node()) inner.add_node()->Swap(&n);
    inner.add_output()->set_name("y");
    m.mutable_graph()->clear_node();
    auto* n = m.mutable_graph()->add_node();
    n->set_op_type("If"), n->add_input("cond"), n->add_output("y");
    for (const char* key : {"then_branch", "else_branch"}) {
      auto* a = n->add_attribute();
      a->set_name(key), a->set_type(pb::AttributeProto::GRAPH);
      if (key[0] == 't') *a->mutable_g() = inner;
    }
  }
  auto* t = m.mutable_graph()->add_initializer();
  t->set_name("cond"), t->set_data_type(kBool), t->set_raw_data(std::string(1, '\1'));
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {"raw data too short", [](auto& m) { weights(m).mutable_raw_data()->resize(11); },
       "has 11 bytes of data, its shape needs 1152"},
      {"raw data too long", [](auto& m) { weights(m).mutable_raw_data()->append(1, 'x'); }, "has 1153 bytes of data"},
      {"raw data and fields", [](auto& m) { weights(m).add_float_data(1); }, ""},
      {"no data", [](auto& m) { weights(m).clear_raw_data(); }, "0 elements of data"},
      {"2^62 elements", [](auto& m) { weights(m).set_dims(0, 1L << 62); }, "2^40"},
      {"product overflows",
       [](auto& m) {
         for (int i = 0; i < 4; ++i) weights(m).set_dims(i, 1L << 32);
       },
       "2^40"},
      {"a negative dimension", [](auto& m) { weights(m).set_dims(0, -8); }, "negative dimension"},
      {"INT64_MIN", [](auto& m) { weights(m).set_dims(0, INT64_MIN); }, "negative dimension"},
      {"1000 dimensions",
       [](auto& m) {
         for (int i = 0; i < 1000; ++i) weights(m).add_dims(1);
       },
       ""},
      {"weights of text", [](auto& m) { weights(m).set_data_type(8); }, "element type string"},
      {"weights of no type", [](auto& m) { weights(m).set_data_type(999); }, "type 999"},
      {"an int64 that says float16", [](auto& m) { weights(m).set_data_type(kHalf); }, "1152 bytes of data, its shape needs 576"},
      {"input of 2^63 elements",
       [](auto& m) {
         auto* shape = m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
         for (int i = 0; i < 4; ++i) shape->mutable_dim(i)->set_dim_value(INT64_MAX);
       },
       ""},
      {"an input of dimension -5",
       [](auto& m) {
         m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(2)->set_dim_value(
             -5);
       },
       ""},
      {"a name twice", [](auto& m) { m.mutable_graph()->mutable_node(0)->set_output(0, "y"); }, "defined twice"},
      {"two initializers of a name", [](auto& m) { m.mutable_graph()->mutable_initializer(1)->set_name("w"); }, "\"w\""},
      {"a cycle", [](auto& m) { m.mutable_graph()->mutable_node(0)->set_input(0, "y"); }, "has a cycle"},
      {"a node that reads itself", [](auto& m) { m.mutable_graph()->mutable_node(1)->set_input(0, "y"); }, "has a cycle"},
      {"pads of INT64_MAX", [](auto& m) { m.mutable_graph()->mutable_node(0)->mutable_attribute(0)->set_ints(2, INT64_MAX); },
       "outside"},
      {"pads that are a text",
       [](auto& m) {
         auto* a = m.mutable_graph()->mutable_node(0)->mutable_attribute(0);
         a->set_type(pb::AttributeProto::STRING), a->set_s("1,1,1,1");
       },
       "pads"},
      {"a function that calls itself", [](auto& m) { chain(m, 1, 1, true); }, "calls itself"},
      {"functions that call each other", [](auto& m) { chain(m, 5, 3, true); }, ""},
      {"functions that double 25 times", [](auto& m) { chain(m, 25, 2, false); }, "nodes after inlining"},
      {"functions that double 40 times", [](auto& m) { chain(m, 40, 2, false); }, "functions deep; the most are 32"},
      {"calls 40 functions deep", [](auto& m) { chain(m, 40, 1, false); }, "functions deep; the most are 32"},
      {"a cycle of 40 functions", [](auto& m) { chain(m, 40, 1, true); }, "functions deep; the most are 32"},
      {"functions that double 14 times", [](auto& m) { chain(m, 14, 2, false); }, "nodes after inlining"},
      {"functions that double 10 times", [](auto& m) { chain(m, 10, 2, false); }, ""},
      {"functions that double 12 times, called by a name of 64 KiB",
       [](auto& m) { chain(m, 12, 2, false), m.mutable_graph()->mutable_node(1)->set_name(std::string(1 << 16, 'n')); },
       "bytes after inlining"},
      {"a graph that calls double 25 times", [](auto& m) { graphs_in_calls(m, 25, 1, 0); }, "nodes after inlining"},
      {"a graph of 64 KiB that 2000 attributes refer to", [](auto& m) { graphs_in_calls(m, 1, 1000, 1 << 16); },
       "bytes after inlining"},
      {"no zero point where there has to be one",
       [](auto& m) {
         auto* product = m.mutable_graph()->add_node();
         product->set_op_type("MatMulInteger"), product->add_output("product");
         for (const char* name : {"codes", "weights", "", "zeros"}) product->add_input(name);
         const auto constant = [&](const char* name, std::initializer_list<std::int64_t> dims, std::size_t size) {
           auto* t = m.mutable_graph()->add_initializer();
           t->set_name(name), t->set_data_type(kU8), t->set_raw_data(std::string(size, '\1'));
           for (const std::int64_t d : dims) t->add_dims(d);
         };
         constant("codes", {1, 4}, 4), constant("weights", {4, 2}, 8), constant("zeros", {0}, 0);
         m.mutable_graph()->add_output()->set_name("product");
       },
       "0 zero points for codes [4,2]"},
      {"a text where Unique has a number",
       [](auto& m) {
         auto* unique = m.mutable_graph()->add_node();
         unique->set_op_type("Unique"), unique->add_input("y"), unique->add_output("once");
         auto* sorted = unique->add_attribute();
         sorted->set_name("sorted"), sorted->set_type(pb::AttributeProto::STRING), sorted->set_s("]");
         m.mutable_graph()->add_output()->set_name("once");
       },
       "attribute sorted"},
      {"a shape of floats for a size that data decide",
       [](auto& m) {
         auto* found = m.mutable_graph()->add_node();
         found->set_op_type("NonZero"), found->add_input("y"), found->add_output("found");
         auto* flat = m.mutable_graph()->add_node();
         flat->set_op_type("Reshape"), flat->add_input("found"), flat->add_input("to"), flat->add_output("flat");
         auto* to = m.mutable_graph()->add_initializer();
         const double nan = std::numeric_limits<double>::quiet_NaN();
         to->set_name("to"), to->set_data_type(kDouble), to->add_dims(1);
         to->set_raw_data(std::string(reinterpret_cast<const char*>(&nan), 8));
         m.mutable_graph()->add_output()->set_name("flat");
       },
       "needs integers"},
      {"a concatenation of different ranks, one of a size that data decide",
       [](auto& m) {
         auto* found = m.mutable_graph()->add_node();
         found->set_op_type("NonZero"), found->add_input("y"), found->add_output("found");
         auto* joined = m.mutable_graph()->add_node();
         joined->set_op_type("Concat"), joined->add_input("found"), joined->add_input("one"), joined->add_output("joined");
         auto* axis = joined->add_attribute();
         axis->set_name("axis"), axis->set_type(pb::AttributeProto::INT), axis->set_i(1);
         auto* one = m.mutable_graph()->add_initializer();
         one->set_name("one"), one->set_data_type(kS64), one->add_dims(1), one->set_raw_data(std::string(8, '\0'));
         m.mutable_graph()->add_output()->set_name("joined");
       },
       "concat"},
      {"branches 15 deep", [](auto& m) { nest(m, 15); }, ""},
      {"branches 2000 deep", [](auto& m) { nest(m, 300); }, "not a whole ONNX model"},
      {"a tensor of 2^40 zeros",
       [](auto& m) {
         auto* t = m.mutable_graph()->add_initializer();
         t->set_name("n"), t->set_data_type(kS64), t->add_dims(1);
         const std::int64_t many = std::int64_t{1} << 40;
         t->set_raw_data(std::string(reinterpret_cast<const char*>(&many), 8));
         auto* zeros = m.mutable_graph()->add_node();
         zeros->set_op_type("ConstantOfShape"), zeros->add_input("n"), zeros->add_output("zeros");
         auto* sum = m.mutable_graph()->add_node();
         sum->set_op_type("ReduceSum"), sum->add_input("zeros"), sum->add_output("s");
         m.mutable_graph()->add_output()->set_name("s");
       },
       ""},
      {"opset 2^63 - 1", [](auto& m) { m.mutable_opset_import(0)->set_version(INT64_MAX); }, "opset"},
      {"opset -1", [](auto& m) { m.mutable_opset_import(0)->set_version(-1); }, "opset"},
      {"no graph", [](auto& m) { m.clear_graph(); }, "no graph"},
      {"no node", [](auto& m) { m.mutable_graph()->clear_node(); }, "nothing defines"},
      {"names of a megabyte", [](auto& m) { m.mutable_graph()->mutable_node(0)->set_name(std::string(1 << 20, 'n')); }, ""},
      {"names that are not UTF-8", [](auto& m) { m.mutable_graph()->mutable_node(0)->set_name("\xff\xfe\x80"); }, ""},
  };
  return kCases;
}

TEST(Hostile, MadeOnPurpose) {
  std::vector<std::string> files;
  for (const Case& c : cases()) {
    pb::ModelProto m = small();
    c.change(m);
    files.push_back(m.SerializeAsString());
  }
  Progress total{};
  run_limited(
      0, files.size(), [&](std::uint64_t i) { return files[i]; }, [](std::uint64_t i) { return cases()[i].name; }, total);
  EXPECT_EQ(total.errors, 0U);
  if (HasFailure()) return;  // what follows imports without limits
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (cases()[i].told.empty()) continue;
    const auto m = import_bytes(std::as_bytes(std::span(files[i])), {}, "");
    ASSERT_FALSE(m) << cases()[i].name;
    EXPECT_NE(m.error().message.find(cases()[i].told), std::string::npos) << cases()[i].name << ": " << m.error().message;
  }
}

TEST(Hostile, ExternalDataStaysInTheFolder) {
  const fs::path root = fs::temp_directory_path() / fmt::format("octavo-hostile-{}", ::getpid()), folder = root / "model";
  fs::create_directories(folder / "sub");
  const auto write = [](const fs::path& path, std::size_t bytes) {
    std::ofstream(path, std::ios::binary) << std::string(bytes, '\1');
  };
  write(root / "outside.bin", 1152), write(folder / "good.bin", 1152), write(folder / "short.bin", 1151);
  fs::create_symlink(root / "outside.bin", folder / "link.bin");
  fs::create_directory_symlink(root, folder / "sub" / "up");
  fs::create_symlink("loop.bin", folder / "loop.bin");
  ASSERT_EQ(::mkfifo((folder / "fifo.bin").c_str(), 0600), 0);
  const auto told = [&](const std::string& location, const std::string& offset = "", const std::string& length = "") {
    pb::ModelProto m = small();
    weights(m).clear_raw_data();
    weights(m).set_data_location(pb::TensorProto::EXTERNAL);
    const auto say = [&](const char* key, const std::string& v) {
      auto* e = weights(m).add_external_data();
      e->set_key(key), e->set_value(v);
    };
    say("location", location);
    if (!offset.empty()) say("offset", offset);
    if (!length.empty()) say("length", length);
    const std::string bytes = m.SerializeAsString();
    const auto model = import_bytes(std::as_bytes(std::span(bytes)), {}, folder.string());
    return model ? std::string() : model.error().message;
  };
  const auto expect = [&](const std::string& said, const std::string& part) {
    EXPECT_NE(said.find(part), std::string::npos) << "said: " << said << "\nwanted: " << part;
  };
  EXPECT_EQ(told("good.bin"), "");
  EXPECT_EQ(told("sub/../good.bin"), "");
  for (const char* out :
       {"../outside.bin", "../../etc/passwd", "/etc/passwd", "sub/../../outside.bin", "link.bin", "sub/up/outside.bin"})
    expect(told(out), "leads out of the folder of the model");
  for (const char* none : {"absent.bin", "sub", "fifo.bin", "."}) expect(told(none), "is not a file in the folder of the model");
  EXPECT_NE(told("loop.bin"), "");
  expect(told(std::string("good.bin\0/../../x", 17)), "holds a zero byte");
  expect(told(std::string("..\0/outside.bin", 15)), "holds a zero byte");
  EXPECT_NE(told(std::string(5000, 'a')), "");
  expect(told(""), "no location");
  expect(told("short.bin"), "has 1151 bytes");
  expect(told("good.bin", "1"), "needs 1152 bytes at offset 1");
  expect(told("good.bin", "18446744073709551615"), "at offset 18446744073709551615");
  expect(told("good.bin", "18446744073709551616"), "not a number");
  expect(told("good.bin", "-1"), "not a number");
  expect(told("good.bin", "0", "1151"), "length is 1151 bytes, the shape needs 1152");
  fs::remove_all(root);
}

}  // namespace
}  // namespace octavo::onnx
