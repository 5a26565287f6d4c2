#include "onnx/edit/channels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "onnx/edit/edit.h"

namespace octavo::onnx {
namespace {

const pb::AttributeProto* attribute(const pb::NodeProto& n, const char* name) {
  for (const auto& a : n.attribute()) {
    if (a.name() == name) return &a;
  }
  return nullptr;
}

bool matrix(const Layer& l) {
  return l.op == "MatMul" || l.op == "Gemm";
}

/// Output channels, and input channels in all groups.
std::int64_t channels_out(const Layer& l) {
  const ir::Shape& w = l.weight_values.shape();
  return matrix(l) ? w[l.transposed ? 0 : 1] : w[0];
}
std::int64_t channels_in(const Layer& l) {
  const ir::Shape& w = l.weight_values.shape();
  return matrix(l) ? w[l.transposed ? 1 : 0] : w[1] * l.group;
}

/// Of the element `i` of the weights: output channel and input channel.
std::pair<std::int64_t, std::int64_t> channels_of(const Layer& l, std::int64_t i) {
  const ir::Shape& w = l.weight_values.shape();
  if (matrix(l)) {
    const std::int64_t row = i / w[1], column = i % w[1];
    return l.transposed ? std::pair{row, column} : std::pair{column, row};
  }
  const std::int64_t taps = ir::count(w) / (w[0] * w[1]), out = i / taps / w[1], in = i / taps % w[1];
  return {out, out / (w[0] / l.group) * w[1] + in};
}

bool padded(const Layer& l) {
  return (l.auto_pad != "NOTSET" && l.auto_pad != "VALID") ||
         std::any_of(l.pads.begin(), l.pads.end(), [](std::int64_t p) { return p != 0; });
}

class Finder {
 public:
  Finder(const Editor& model, const std::vector<Layer>& layers, const std::map<std::string, ir::Shape>& shapes)
      : m_(model), layers_(layers), shapes_(shapes) {}

  std::vector<ChannelGroup> run() {
    for (std::size_t l = 0; l < layers_.size(); ++l) layer_by_output_[layers_[l].output] = l;
    for (const auto& x : m_.graph().input()) fix(x.name());
    for (const auto& x : m_.graph().output()) fix(x.name());
    for (int i = 0; i < m_.graph().node_size(); ++i) node(i);
    std::map<std::string, ChannelGroup> groups;
    std::map<std::string, std::size_t> order;
    const auto group_of = [&](const std::string& tensor) -> ChannelGroup& {
      const std::string& r = root(tensor);
      order.emplace(r, order.size());
      return groups[r];
    };
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      ChannelGroup& in = group_of(layers_[l].input);
      if (std::find(in.read.begin(), in.read.end(), layers_[l].input) == in.read.end()) in.read.push_back(layers_[l].input);
      in.readers.push_back(l);
      group_of(layers_[l].output).makers.push_back(l);
    }
    for (const auto& [index, tensor] : norms_) group_of(tensor).norms.push_back(index);
    for (const auto& [tensor, bounds] : limits_) group_of(tensor).limits[tensor] = bounds;
    for (const std::string& sum : sums_) group_of(sum).additions = true;
    std::set<std::string> commuting, fixed;
    for (const std::string& t : commuting_) commuting.insert(root(t));
    for (const std::string& t : fixed_) fixed.insert(root(t));
    std::vector<std::pair<std::size_t, ChannelGroup>> found;
    for (auto& [name, g] : groups) {
      if (!fixed.contains(name) && complete(g)) found.emplace_back(order.at(name), std::move(g));
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<ChannelGroup> out;
    for (auto& [at, g] : found) {
      g.offsets = g.norms.empty() && g.axis == 1 && !commuting.contains(root(g.read.front())) &&
                  std::all_of(g.makers.begin(), g.makers.end(), [&](std::size_t l) { return layers_[l].op == "Conv"; }) &&
                  std::all_of(g.readers.begin(), g.readers.end(),
                              [&](std::size_t l) { return layers_[l].op == "Conv" && !padded(layers_[l]); });
      out.push_back(std::move(g));
    }
    return out;
  }

 private:
  const std::string& root(const std::string& t) {
    const std::string* at = &t;
    for (auto next = parent_.find(*at); next != parent_.end(); next = parent_.find(*at)) at = &next->second;
    return *at;
  }
  void join(const std::string& a, const std::string& b) {
    const std::string x = root(a), y = root(b);
    if (x != y) parent_.emplace(x, y);
  }
  void fix(const std::string& t) { fixed_.insert(t); }

  [[nodiscard]] bool variable(const std::string& t) const { return !t.empty() && m_.constant(t) == nullptr; }
  [[nodiscard]] const ir::Shape* shape(const std::string& t) const {
    const auto at = shapes_.find(t);
    return at == shapes_.end() ? nullptr : &at->second;
  }

  void node(int index) {
    const pb::NodeProto& n = m_.graph().node(index);
    const std::string& op = n.op_type();
    if (op == "Constant") return;
    const auto layer = n.output_size() > 0 ? layer_by_output_.find(n.output(0)) : layer_by_output_.end();
    if (layer != layer_by_output_.end() && op != "ConvTranspose") {
      const Layer& l = layers_[layer->second];
      if (l.plain && !l.shared && l.weight_values.shape().size() >= (matrix(l) ? 2U : 3U) &&
          (!matrix(l) || l.weight_values.shape().size() == 2))
        return;
    }
    if (op == "BatchNormalization" && n.input_size() == 5 && n.output_size() == 1 && norm(n)) {
      fix(n.input(0));
      norms_.emplace_back(index, n.output(0));
      return;
    }
    if (commutes(n)) {
      commuting_.push_back(n.output(0));
      join(n.input(0), n.output(0));
      return;
    }
    if (op == "Add" && n.input_size() == 2 && variable(n.input(0)) && variable(n.input(1))) {
      const ir::Shape *a = shape(n.input(0)), *b = shape(n.input(1));
      if (a != nullptr && b != nullptr && *a == *b) {
        join(n.input(0), n.output(0));
        join(n.input(1), n.output(0));
        sums_.push_back(n.output(0));
        return;
      }
    }
    for (const auto& t : n.input()) fix(t);
    for (const auto& t : n.output()) fix(t);
  }

  [[nodiscard]] bool norm(const pb::NodeProto& n) const {
    return std::all_of(n.input().begin() + 1, n.input().end(), [&](const auto& t) {
      const ir::Tensor* c = m_.constant(t);
      return c != nullptr && c->dtype() == ir::DType::f32;
    });
  }

  /// f(a x) = a f(x) for every factor a > 0 of a channel (a Clip: as long as no value passes a bound that did not before).
  bool commutes(const pb::NodeProto& n) {
    const std::string& op = n.op_type();
    if (n.output_size() != 1 || n.input_size() == 0 || !variable(n.input(0))) return false;
    if (op == "Relu" || op == "LeakyRelu" || op == "Identity" || op == "MaxPool" || op == "AveragePool" ||
        op == "GlobalAveragePool" || op == "GlobalMaxPool")
      return true;
    if (op == "PRelu") return n.input_size() == 2 && !variable(n.input(1));
    if (op == "Flatten") {
      const ir::Shape* s = shape(n.input(0));
      const auto* axis = attribute(n, "axis");
      return s != nullptr && s->size() >= 2 && (axis == nullptr || axis->i() == 1) && ir::count(*s) == (*s)[0] * (*s)[1];
    }
    if (op != "Clip") return false;
    float lo = -std::numeric_limits<float>::infinity(), hi = -lo;
    const auto bound = [&](int slot, const char* name, float& value) {
      if (const auto* a = attribute(n, name)) value = a->f();
      if (slot >= n.input_size() || n.input(slot).empty()) return true;
      const ir::Tensor* c = m_.constant(n.input(slot));
      if (c == nullptr || c->dtype() != ir::DType::f32 || c->size() != 1) return false;
      value = c->data<float>()[0];
      return true;
    };
    if (!bound(1, "min", lo) || !bound(2, "max", hi) || lo > 0 || hi < 0) return false;
    limits_[n.output(0)] = {lo, hi};
    return true;
  }

  /// Fills what follows from the layers; false where a factor could not be written into them.
  bool complete(ChannelGroup& g) {
    if (g.readers.empty() || (g.makers.empty() && g.norms.empty())) return false;
    bool last = false;
    g.depthwise = true;
    const auto agree = [&](std::int64_t n) {
      if (g.channels == 0) g.channels = n;
      return g.channels == n;
    };
    for (const std::size_t l : g.makers) {
      if (!agree(channels_out(layers_[l]))) return false;
      last = last || matrix(layers_[l]);
    }
    for (const int i : g.norms) {
      if (!agree(m_.constant(m_.graph().node(i).input(1))->size())) return false;
    }
    for (const std::size_t l : g.readers) {
      const Layer& r = layers_[l];
      if (!agree(channels_in(r))) return false;
      const ir::Shape* s = shape(r.input);
      if (matrix(r) && !last && (s == nullptr || s->size() != 2)) return false;
      g.depthwise = g.depthwise && !matrix(r) && r.weight_values.shape()[1] == 1;
    }
    if (!last) return true;
    std::size_t rank = 0;  // of every tensor: the channels are the last dimension
    for (const auto* list : {&g.makers, &g.readers}) {
      for (const std::size_t l : *list) {
        if (!matrix(layers_[l])) return false;
        const ir::Shape* s = shape(list == &g.makers ? layers_[l].output : layers_[l].input);
        if (s == nullptr || (rank != 0 && s->size() != rank)) return false;
        rank = s->size();
      }
    }
    g.axis = static_cast<int>(rank) - 1;
    return g.norms.empty();
  }

  const Editor& m_;
  const std::vector<Layer>& layers_;
  const std::map<std::string, ir::Shape>& shapes_;
  std::map<std::string, std::size_t> layer_by_output_;
  std::map<std::string, std::string> parent_;
  std::set<std::string> fixed_;
  std::vector<std::pair<int, std::string>> norms_;
  std::map<std::string, std::pair<float, float>> limits_;
  std::vector<std::string> sums_, commuting_;
};

class Changer {
 public:
  Changer(Editor& model, const std::vector<Layer>& layers, const std::vector<ChannelGroup>& groups,
          const std::vector<ChannelChange>& changes)
      : m_(model), layers_(layers), groups_(groups), changes_(changes) {}

  void run() {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (const std::size_t l : groups_[g].makers) made_by_[l] = g;
      for (const std::size_t l : groups_[g].readers) read_by_[l] = g;
      for (const int index : groups_[g].norms) normalize(index, changes_[g].factor);
      for (const auto& [tensor, offset] : changes_[g].wanted_offset) wanted_.emplace(tensor, offset);
    }
    if (!wanted_.empty()) propagate();
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      if (made_by_.contains(l) || read_by_.contains(l)) layer(l);
    }
  }

 private:
  using Values = std::vector<double>;

  void normalize(int index, const Values& factor) {
    for (const int slot : {1, 2}) {
      const std::string old = m_.graph().node(index).input(slot);
      ir::Tensor value = m_.constant(old)->clone();
      const auto v = value.mutable_data<float>();
      for (std::size_t c = 0; c < v.size(); ++c) v[c] = static_cast<float>(static_cast<double>(v[c]) * factor[c]);
      const std::string name = m_.fresh(old + "_equalized");
      m_.set_constant(name, value);
      m_.graph().mutable_node(index)->set_input(slot, name);
    }
  }

  /// Which offset each tensor of a group with offsets gets, in the order of the nodes.
  void propagate() {
    std::map<std::string, std::size_t> maker;
    for (const auto& [l, g] : made_by_) {
      if (groups_[g].offsets) maker[layers_[l].output] = g;
    }
    for (const pb::NodeProto& n : m_.graph().node()) {
      if (n.output_size() == 0) continue;
      const std::string& t = n.output(0);
      if (const auto at = maker.find(t); at != maker.end()) {
        offset_[t] = offset_of_result(t, static_cast<std::size_t>(groups_[at->second].channels));
      } else if (n.op_type() == "Add" && offset_.contains(n.input(0)) && offset_.contains(n.input(1))) {
        Values sum = offset_[n.input(0)];
        for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += offset_[n.input(1)][c];
        offset_[t] = std::move(sum);
      }
    }
  }
  Values offset_of_result(const std::string& t, std::size_t channels) const {
    if (const auto at = wanted_.find(t); at != wanted_.end()) return at->second;
    Values out(channels, 0.0);
    for (const pb::NodeProto& n : m_.graph().node()) {  // what the sum wants and the other operand does not bring
      if (n.op_type() != "Add" || (n.input(0) != t && n.input(1) != t)) continue;
      const auto sum = wanted_.find(n.output(0));
      if (sum != wanted_.end()) out = sum->second;
      const auto other = offset_.find(n.input(n.input(0) == t ? 1 : 0));
      for (std::size_t c = 0; other != offset_.end() && c < channels; ++c) out[c] -= other->second[c];
      break;
    }
    return out;
  }

  void layer(std::size_t index) {
    const Layer& l = layers_[index];
    const auto made = made_by_.find(index), read = read_by_.find(index);
    const Values* out = made == made_by_.end() ? nullptr : &changes_[made->second].factor;
    const Values* in = read == read_by_.end() ? nullptr : &changes_[read->second].factor;
    const auto added = offset_.find(l.output), taken = offset_.find(l.input);
    const auto count = static_cast<std::size_t>(channels_out(l));
    Values bias(count, 0.0);  // what is added to the results, which are multiplied already
    ir::Tensor w = l.weight_values.clone();
    const auto v = w.mutable_data<float>();
    for (std::size_t i = 0; i < v.size(); ++i) {
      const auto [o, c] = channels_of(l, static_cast<std::int64_t>(i));
      double x = v[i];
      if (out != nullptr) x *= (*out)[static_cast<std::size_t>(o)];
      if (in != nullptr) x /= (*in)[static_cast<std::size_t>(c)];
      if (taken != offset_.end()) bias[static_cast<std::size_t>(o)] += x * taken->second[static_cast<std::size_t>(c)];
      v[i] = static_cast<float>(x);
    }
    set_weights(m_, l, w);
    if (!l.bias_values.empty()) {
      const auto have = l.bias_values.data<float>();
      for (std::size_t o = 0; o < count && out != nullptr; ++o)
        bias[o] += static_cast<double>(have[have.size() == count ? o : 0]) * ((*out)[o] - 1);
    }
    for (std::size_t o = 0; o < count && added != offset_.end(); ++o) bias[o] -= added->second[o];
    if (std::any_of(bias.begin(), bias.end(), [](double b) { return b != 0; })) add_to_bias(m_, l, {bias.begin(), bias.end()});
  }

  Editor& m_;
  const std::vector<Layer>& layers_;
  const std::vector<ChannelGroup>& groups_;
  const std::vector<ChannelChange>& changes_;
  std::map<std::size_t, std::size_t> made_by_, read_by_;  ///< layer -> group
  std::map<std::string, Values> wanted_, offset_;
};

}  // namespace

std::vector<ChannelGroup> channel_groups(const Editor& model, const std::vector<Layer>& layers,
                                         const std::map<std::string, ir::Shape>& shapes) {
  return Finder(model, layers, shapes).run();
}

void change_channels(Editor& model, const std::vector<Layer>& layers, const std::vector<ChannelGroup>& groups,
                     const std::vector<ChannelChange>& changes) {
  Changer(model, layers, groups, changes).run();
}

}  // namespace octavo::onnx
