// Small ONNX models built in memory, for tests.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "onnx/import/import.h"
#include "onnx/model/schema.h"

namespace octavo::onnx::testing {

using Dims = std::vector<std::int64_t>;
inline constexpr int kFloat = 1, kU8 = 2, kS8 = 3, kS16 = 5, kS32 = 6, kS64 = 7, kBool = 9, kHalf = 10, kDouble = 11;

/// A node under construction: attributes by type.
class NodeRef {
 public:
  explicit NodeRef(pb::NodeProto* node) : node_(node) {}
  NodeRef& i(const std::string& key, std::int64_t v) {
    attr(key, pb::AttributeProto::INT)->set_i(v);
    return *this;
  }
  NodeRef& f(const std::string& key, float v) {
    attr(key, pb::AttributeProto::FLOAT)->set_f(v);
    return *this;
  }
  NodeRef& s(const std::string& key, const std::string& v) {
    attr(key, pb::AttributeProto::STRING)->set_s(v);
    return *this;
  }
  NodeRef& ints(const std::string& key, const Dims& v) {
    auto* a = attr(key, pb::AttributeProto::INTS);
    for (const std::int64_t x : v) a->add_ints(x);
    return *this;
  }
  NodeRef& name(const std::string& v) {
    node_->set_name(v);
    return *this;
  }
  NodeRef& domain(const std::string& v) {
    node_->set_domain(v);
    return *this;
  }
  pb::NodeProto* proto() { return node_; }

 private:
  pb::AttributeProto* attr(const std::string& key, pb::AttributeProto::AttributeType type) {
    auto* a = node_->add_attribute();
    a->set_name(key);
    a->set_type(type);
    return a;
  }
  pb::NodeProto* node_;
};

class ModelBuilder {
 public:
  explicit ModelBuilder(int opset = 17) {
    proto.set_ir_version(8);
    proto.add_opset_import()->set_version(opset);
    proto.mutable_graph()->set_name("test");
  }
  /// Negative dimensions become symbols: -1 is "N", -2 is "H", -3 is "W", others unnamed.
  ModelBuilder& input(const std::string& name, const Dims& dims, int type = kFloat) {
    value(proto.mutable_graph()->add_input(), name, dims, type);
    return *this;
  }
  ModelBuilder& output(const std::string& name, int type = kFloat) {
    auto* v = proto.mutable_graph()->add_output();
    v->set_name(name);
    v->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    return *this;
  }
  template <class T>
  ModelBuilder& constant(const std::string& name, const Dims& dims, const std::vector<T>& values, int type) {
    auto* t = proto.mutable_graph()->add_initializer();
    t->set_name(name);
    t->set_data_type(type);
    for (const std::int64_t d : dims) t->add_dims(d);
    t->mutable_raw_data()->assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    return *this;
  }
  ModelBuilder& floats(const std::string& name, const Dims& dims, const std::vector<float>& v) {
    return constant(name, dims, v, kFloat);
  }
  /// n elements that differ.
  ModelBuilder& ramp(const std::string& name, const Dims& dims) {
    std::vector<float> v(static_cast<std::size_t>(ir::count(dims)));
    for (std::size_t k = 0; k < v.size(); ++k) v[k] = 0.25F * static_cast<float>(k % 7) - 0.5F;
    return floats(name, dims, v);
  }
  ModelBuilder& ints(const std::string& name, const std::vector<std::int64_t>& v) {
    return constant(name, {static_cast<std::int64_t>(v.size())}, v, kS64);
  }
  NodeRef node(const std::string& type, std::initializer_list<std::string> in, std::initializer_list<std::string> out) {
    auto* n = proto.mutable_graph()->add_node();
    n->set_op_type(type);
    for (const auto& x : in) n->add_input(x);
    for (const auto& x : out) n->add_output(x);
    return NodeRef(n);
  }
  [[nodiscard]] std::string bytes() const { return proto.SerializeAsString(); }
  [[nodiscard]] Result<Model> import(const ImportOptions& options = {}, const std::string& base_dir = "") const {
    const std::string b = bytes();
    return import_bytes({reinterpret_cast<const std::byte*>(b.data()), b.size()}, options, base_dir);
  }
  /// The text of the error, "" if the import succeeds.
  [[nodiscard]] std::string error(const ImportOptions& options = {}) const {
    const auto model = import(options);
    return model ? "" : model.error().message;
  }

  pb::ModelProto proto;

 private:
  static void value(pb::ValueInfoProto* v, const std::string& name, const Dims& dims, int type) {
    v->set_name(name);
    auto* t = v->mutable_type()->mutable_tensor_type();
    t->set_elem_type(type);
    t->mutable_shape();
    for (const std::int64_t d : dims) {
      auto* dim = t->mutable_shape()->add_dim();
      if (d >= 0) dim->set_dim_value(d);
      if (d == -1) dim->set_dim_param("N");
      if (d == -2) dim->set_dim_param("H");
      if (d == -3) dim->set_dim_param("W");
    }
  }
};

/// Live nodes that are not inputs or constants, in order.
inline std::vector<const ir::Node*> nodes_of(const ir::Graph& g) {
  std::vector<const ir::Node*> out;
  for (const ir::NodeId id : g.order()) {
    if (g.node(id).op != ir::Op::input && g.node(id).op != ir::Op::constant) out.push_back(&g.node(id));
  }
  return out;
}
/// "conv relu max_pool"
inline std::string ops_of(const ir::Graph& g) {
  std::string out;
  for (const ir::Node* n : nodes_of(g)) out += (out.empty() ? "" : " ") + std::string(ir::name_of(n->op));
  return out;
}

}  // namespace octavo::onnx::testing
