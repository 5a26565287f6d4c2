#include "fuzz/mutate_model.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "onnx/import/import.h"
#include "onnx/model/schema.h"

namespace octavo::fuzz {
namespace {

namespace pb = octavo_onnx;

constexpr std::int64_t kExtremes[] = {0,           1,        -1,       2,        3,         -2,        7,
                                      16,          255,      256,      65536,    1L << 24,  1L << 30,  1L << 31,
                                      -(1L << 31), 1L << 33, 1L << 40, 1L << 62, INT64_MAX, INT64_MIN, INT64_MIN + 1};
constexpr const char* kPlaces[] = {"../../etc/passwd", "/etc/passwd", "nowhere.bin",    "",           ".",          "..",
                                   "a/../../b",        "/dev/zero",   "/proc/self/mem", "data\0.bin", "weights.bin"};

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::string run(const std::string& bytes, const std::string& other) {
    const int edits = 1 + below(5);
    pb::ModelProto model;
    const bool parsed = model.ParseFromString(bytes) && model.has_graph();
    if (!parsed || below(3) == 0) return raw(bytes, other, edits);
    pb::ModelProto donor;
    if (!donor.ParseFromString(other)) donor.Clear();
    for (int i = 0; i < edits; ++i) edit(model, donor);
    std::string out = model.SerializeAsString();
    return below(6) == 0 ? raw(out, other, 1) : out;
  }

 private:
  int below(std::int64_t n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(std::max<std::int64_t>(1, n))); }
  std::int64_t extreme() { return kExtremes[below(std::size(kExtremes))]; }

  std::string raw(std::string bytes, const std::string& other, int edits) {
    for (int e = 0; e < edits && !bytes.empty(); ++e) {
      const auto at = static_cast<std::size_t>(below(static_cast<std::int64_t>(bytes.size())));
      switch (below(8)) {
        case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
        case 1: bytes[at] = static_cast<char>(random_()); break;
        case 2: bytes[at] = static_cast<char>(below(2) ? 0xff : 0x7f); break;
        case 3: bytes.erase(at, static_cast<std::size_t>(1 + below(16))); break;
        case 4:
          bytes.insert(at, bytes.substr(static_cast<std::size_t>(below(static_cast<std::int64_t>(bytes.size()))), 1 + at % 64));
          break;
        case 5:
          bytes.insert(at, other.substr(static_cast<std::size_t>(below(static_cast<std::int64_t>(other.size()))), 1 + at % 200));
          break;
        case 6: bytes.insert(at, "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"); break;  // a varint of 63 bits: a length, a tag, a number
        default:
          if (below(4) == 0) bytes.resize(at);
      }
    }
    return bytes;
  }

  template <class Field>
  auto* any(Field* list) {
    return list->empty() ? nullptr : &(*list)[below(list->size())];
  }

  std::string some_name(const pb::GraphProto& g) {
    std::vector<std::string> names{"", "unknown"};
    for (const auto& n : g.node()) names.insert(names.end(), n.output().begin(), n.output().end());
    for (const auto& t : g.initializer()) names.push_back(t.name());
    for (const auto& i : g.input()) names.push_back(i.name());
    return names[static_cast<std::size_t>(below(static_cast<std::int64_t>(names.size())))];
  }

  void edit(pb::ModelProto& m, const pb::ModelProto& donor) {
    pb::GraphProto& g = *m.mutable_graph();
    pb::NodeProto* n = any(g.mutable_node());
    pb::TensorProto* t = any(g.mutable_initializer());
    switch (below(22)) {
      case 0:
      case 1:
      case 2:
        if (n != nullptr) attribute(*n, donor);
        break;
      case 3:
        if (n != nullptr && n->input_size() > 0) n->set_input(below(n->input_size()), some_name(g));  // often a cycle
        break;
      case 4:
        if (n != nullptr && n->output_size() > 0) n->set_output(below(n->output_size()), some_name(g));  // often defined twice
        break;
      case 5:
        if (n != nullptr) n->add_input(some_name(g));
        break;
      case 6:
        if (n != nullptr && n->input_size() > 0) n->mutable_input()->RemoveLast();
        break;
      case 7:
        if (n != nullptr) rename(*n);
        break;
      case 8:
      case 9:
        if (t != nullptr) tensor(*t);
        break;
      case 10:
        if (t != nullptr) t->set_name(some_name(g));
        break;
      case 11:
        if (t != nullptr) external(*t);
        break;
      case 12:
        if (auto* i = any(g.mutable_input())) value(*i);
        break;
      case 13:
        if (auto* o = any(g.mutable_output())) below(2) ? value(*o) : o->set_name(some_name(g));
        break;
      case 14: m.set_ir_version(extreme()); break;
      case 15:
        if (auto* o = any(m.mutable_opset_import())) below(2) ? o->set_version(7 + below(22)) : o->set_version(extreme());
        break;
      case 16: deep(g); break;
      case 17: functions(m, g); break;
      case 18:
        if (const auto& from = donor.graph().node(); !from.empty()) *g.add_node() = from[below(from.size())];
        break;
      case 19:
        if (const auto& from = donor.graph().initializer(); !from.empty()) *g.add_initializer() = from[below(from.size())];
        break;
      case 20: g.MergeFrom(donor.graph()); break;
      default:
        if (n != nullptr && below(2)) *g.add_node() = *n;
        if (t != nullptr && t->raw_data().size() >= 8 && t->data_type() == 7) {  // shapes, axes, pads as data
          const std::int64_t v = extreme();
          t->mutable_raw_data()->replace(8 * static_cast<std::size_t>(below(static_cast<std::int64_t>(t->raw_data().size() / 8))),
                                         8, reinterpret_cast<const char*>(&v), 8);
        }
    }
  }

  void attribute(pb::NodeProto& n, const pb::ModelProto& donor) {
    pb::AttributeProto* a = any(n.mutable_attribute());
    if (a == nullptr || below(8) == 0) {
      if (const auto& from = donor.graph().node(); !from.empty())
        n.mutable_attribute()->MergeFrom(from[below(from.size())].attribute());
      return;
    }
    switch (below(8)) {
      case 0: a->set_type(static_cast<pb::AttributeProto::AttributeType>(below(15))); break;  // says one kind, holds another
      case 1: a->add_ints(extreme()); break;
      case 2: a->clear_ints(); break;
      case 3: a->set_f(below(2) ? std::numeric_limits<float>::quiet_NaN() : -1e30F); break;
      case 4: a->set_s(below(2) ? std::string(1000, 'x') : std::string("\xff\0", 2)); break;
      case 5: n.add_attribute()->CopyFrom(*a); break;
      default:
        if (a->ints_size() > 0)
          a->set_ints(below(a->ints_size()), extreme());
        else
          a->set_i(extreme());
    }
  }

  void rename(pb::NodeProto& n) {
    static const std::vector<std::string> kOperators = onnx::supported_operators();
    std::string op = kOperators[static_cast<std::size_t>(below(static_cast<std::int64_t>(kOperators.size())))];
    if (below(4) == 0) n.set_domain(below(2) ? "com.microsoft" : "ai.onnx.ml");
    n.set_op_type(op.substr(op.rfind('.') + 1));
  }

  void tensor(pb::TensorProto& t) {
    switch (below(6)) {
      case 0: t.set_data_type(below(28)); break;
      case 1:
        if (t.dims_size() > 0) t.set_dims(below(t.dims_size()), extreme());
        break;
      case 2: t.add_dims(extreme()); break;
      case 3:
        t.mutable_raw_data()->resize(static_cast<std::size_t>(below(static_cast<std::int64_t>(t.raw_data().size()) + 9)));
        break;
      case 4: t.add_float_data(1), t.add_int32_data(-1), t.add_int64_data(INT64_MIN); break;
      default:
        if (!t.raw_data().empty())
          (*t.mutable_raw_data())[static_cast<std::size_t>(below(static_cast<std::int64_t>(t.raw_data().size())))] =
              static_cast<char>(random_());
    }
  }

  void external(pb::TensorProto& t) {
    t.set_data_location(pb::TensorProto::EXTERNAL);
    const auto say = [&](const char* key, const std::string& v) {
      auto* e = t.add_external_data();
      e->set_key(key), e->set_value(v);
    };
    say("location", kPlaces[below(std::size(kPlaces))]);
    if (below(2)) say("offset", std::to_string(extreme()));
    if (below(2)) say("length", below(4) ? std::to_string(extreme()) : "many");
  }

  void value(pb::ValueInfoProto& v) {
    auto& type = *v.mutable_type()->mutable_tensor_type();
    auto& shape = *type.mutable_shape();
    switch (below(5)) {
      case 0: type.set_elem_type(below(28)); break;
      case 1: shape.add_dim()->set_dim_value(extreme()); break;
      case 2: shape.add_dim()->set_dim_param("N"); break;
      case 3: v.clear_type(); break;
      default:
        if (shape.dim_size() > 0) shape.mutable_dim(below(shape.dim_size()))->set_dim_value(below(2) ? extreme() : 1 + below(9));
    }
  }

  /// A branch within a branch within ... around everything.
  void deep(pb::GraphProto& g) {
    const int levels = 1 + below(40);
    for (int i = 0; i < levels; ++i) {
      pb::GraphProto inner;
      for (auto& n : *g.mutable_node()) inner.add_node()->Swap(&n);
      for (const auto& o : g.output()) *inner.add_output() = o;
      g.clear_node();
      auto* cond = g.add_initializer();
      cond->set_name("cond" + std::to_string(i)), cond->set_data_type(9), cond->set_raw_data(std::string(1, '\1'));
      auto* n = g.add_node();
      n->set_op_type("If"), n->add_input(cond->name());
      for (const auto& o : g.output()) n->add_output(o.name());
      for (const char* key : {"then_branch", "else_branch"}) {
        auto* a = n->add_attribute();
        a->set_name(key), a->set_type(pb::AttributeProto::GRAPH);
        if (key[0] == 't') *a->mutable_g() = inner;
      }
    }
  }

  /// f0 calls f1 twice, f1 calls f2 twice, ...; the last one may call the first.
  void functions(pb::ModelProto& m, pb::GraphProto& g) {
    const int count = 1 + below(below(8) == 0 ? 30 : 10);
    m.add_opset_import()->set_domain("bomb");
    const auto name = [](int i) { return "f" + std::to_string(i); };
    for (int i = 0; i < count; ++i) {
      auto* f = m.add_functions();
      f->set_name(name(i)), f->set_domain("bomb"), f->add_input("a"), f->add_output("c");
      for (int k = 0; k < 2; ++k) {
        auto* n = f->add_node();
        const bool last = i + 1 == count;
        n->set_op_type(last && below(2) ? "Relu" : name(last ? 0 : i + 1));
        if (n->op_type() != "Relu") n->set_domain("bomb");
        n->add_input(k == 0 ? "a" : "b"), n->add_output(k == 0 ? "b" : "c");
      }
    }
    auto* n = g.add_node();
    n->set_op_type(name(0)), n->set_domain("bomb"), n->add_input(some_name(g)), n->add_output("of_the_bomb");
    if (below(2)) g.add_output()->set_name("of_the_bomb");
  }

  std::mt19937_64 random_;
};

}  // namespace

std::string mutate_model(const std::string& bytes, const std::string& other, std::uint64_t seed) {
  return Mutator(seed).run(bytes, other);
}

}  // namespace octavo::fuzz
