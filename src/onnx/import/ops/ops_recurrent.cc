// RNN, GRU, LSTM. Absent operands are filled in with zeros, so that the IR has one form.
#include <algorithm>
#include <array>

#include "onnx/import/compose.h"
#include "onnx/import/registry.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

struct Function {
  std::string_view name;
  bool alpha, beta;  ///< takes them from the lists
  double default_alpha, default_beta;
};
constexpr std::array kFunctions{
    Function{"Relu", false, false, 0, 0},           Function{"Tanh", false, false, 0, 0},
    Function{"Sigmoid", false, false, 0, 0},        Function{"Softsign", false, false, 0, 0},
    Function{"Softplus", false, false, 0, 0},       Function{"LeakyRelu", true, false, 0.01F, 0},
    Function{"ThresholdedRelu", true, false, 1, 0}, Function{"Elu", true, false, 1, 0},
    Function{"Affine", true, true, 1, 0},           Function{"ScaledTanh", true, true, 1, 1},
    Function{"HardSigmoid", true, true, 0.2F, 0.5},
};

bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// activations, activation_alpha, activation_beta -> the attributes of the IR operator; values are taken in order by those that
/// need them.
Status functions(NodeContext& n, Attrs& attrs, const std::vector<std::string_view>& defaults, std::size_t directions) {
  std::vector<std::string> names = n.attr_texts("activations");
  const std::vector<float> alphas = n.attr_floats("activation_alpha"), betas = n.attr_floats("activation_beta");
  if (names.empty()) {
    for (std::size_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  }
  if (names.size() != directions * defaults.size())
    return n.bad("{} activations, needs {}", names.size(), directions * defaults.size());
  std::string joined;
  std::vector<double> alpha, beta;
  std::size_t next_alpha = 0, next_beta = 0;
  for (const std::string& name : names) {
    const auto* f = std::find_if(kFunctions.begin(), kFunctions.end(), [&](const Function& k) { return same_word(k.name, name); });
    if (f == kFunctions.end()) return n.bad("activation \"{}\" is unknown", name);
    joined += (joined.empty() ? "" : ",") + std::string(f->name);
    alpha.push_back(f->alpha && next_alpha < alphas.size() ? static_cast<double>(alphas[next_alpha++]) : f->default_alpha);
    beta.push_back(f->beta && next_beta < betas.size() ? static_cast<double>(betas[next_beta++]) : f->default_beta);
  }
  attrs["activations"] = joined;
  attrs["alpha"] = alpha;
  attrs["beta"] = beta;
  return {};
}

Status recurrent(NodeContext& n, const char* cell, std::int64_t gates, const std::vector<std::string_view>& defaults) {
  Compose c(n);
  for (const std::size_t i : {0U, 1U, 2U}) OCTAVO_CHECK(n.need_rank(i, 3, 3));
  const std::string direction = n.attr_text("direction", "forward");
  const std::int64_t layout = n.attr_int("layout", 0), d = direction == "bidirectional" ? 2 : 1;
  const Shape x = n.shape(0);
  const std::int64_t steps = x[layout != 0 ? 1 : 0], batch = x[layout != 0 ? 0 : 1], hidden = n.shape(2)[2];
  if (n.attr_int("hidden_size", hidden) != hidden)
    return n.bad("hidden_size does not fit R, which is {}", ir::to_string(n.shape(2)));
  Attrs attrs{{"cell", std::string(cell)},
              {"direction", direction},
              {"layout", layout},
              {"clip", static_cast<double>(n.attr_float("clip", 0.0F))},
              {"linear_before_reset", n.attr_int("linear_before_reset", 0)},
              {"input_forget", n.attr_int("input_forget", 0)}};
  n.ignore({"output_sequence"});
  OCTAVO_CHECK(functions(n, attrs, defaults, static_cast<std::size_t>(d)));
  OCTAVO_CHECK(checked_constant({batch}, n.where()));
  const Shape state = layout != 0 ? Shape{batch, d, hidden} : Shape{d, batch, hidden};
  const auto or_zeros = [&](std::size_t i, Shape shape) { return n.has(i) ? n.in(i) : c.filled(DType::f32, std::move(shape), 0); };
  const ValueId lens = n.has(4) ? c.cast(n.in(4), DType::s64) : c.integers({batch}, Ints(static_cast<std::size_t>(batch), steps));
  const std::vector<ValueId> out = c.many(Op::recurrent,
                                          {n.in(0), n.in(1), n.in(2), or_zeros(3, {d, 2 * gates * hidden}), lens,
                                           or_zeros(5, state), or_zeros(6, state), or_zeros(7, {d, 3 * hidden})},
                                          3, std::move(attrs));
  OCTAVO_CHECK(c.status());
  for (std::size_t i = 0; i < std::min<std::size_t>(out.size(), n.output_count()); ++i) n.set(i, out[i]);
  return {};
}

Status rnn(NodeContext& n) {
  return recurrent(n, "rnn", 1, {"Tanh"});
}
Status gru(NodeContext& n) {
  return recurrent(n, "gru", 3, {"Sigmoid", "Tanh"});
}
Status lstm(NodeContext& n) {
  return recurrent(n, "lstm", 4, {"Sigmoid", "Tanh", "Tanh"});
}

constexpr std::array kRecurrentRows{
    OpRow{"RNN", "", 1, 0, 3, 6, rnn},
    OpRow{"GRU", "", 1, 0, 3, 6, gru},
    OpRow{"LSTM", "", 1, 0, 3, 8, lstm},
};

}  // namespace

Family recurrent_ops() {
  return kRecurrentRows;
}

}  // namespace octavo::onnx
