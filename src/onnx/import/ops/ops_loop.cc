// Loop: its steps are lowered one after the other in place of the node. Where data decide how many there are, as many as there can be are lowered, and a run leaves out
// the work of those that do not happen (plan/layout/gates.h).
#include <algorithm>
#include <optional>

#include "onnx/import/ops/unrolled.h"

namespace octavo::onnx {

Result<std::int64_t> most_steps(NodeContext& n, const pb::GraphProto& body, std::int64_t steps) {
  const std::int64_t nodes = std::max(1, body.node_size());
  if (steps > kMostNodes / nodes)
    return n.unsupported("{} steps of {} nodes; at most {} nodes are unrolled", steps, nodes, kMostNodes);
  return steps;
}

/// a where the condition (bool[]) holds, else b, of one type and rank.
Result<ValueId> selected(NodeContext& n, Compose& c, ValueId condition, ValueId a, ValueId b) {
  const Sizes& sizes = n.importer().sizes();
  if (n.shape_of(a) != n.shape_of(b) || sizes.open(a) || sizes.open(b)) return sized_choice(n, condition, a, b);
  return c.value(c.where(condition, a, b));
}

namespace {

constexpr std::int64_t kMostUnasked = 10000;  ///< nodes of steps that may not happen

/// A Loop while it is unrolled. Results of steps that data decide are taken where the step is one of the run's.
class Unrolled {
 public:
  Unrolled(NodeContext& n, const pb::GraphProto& body) : n_(n), body_(body), c_(n) {}
  Status run();

 private:
  using Given = Importer::Given;
  struct State {
    Given given;
    std::optional<Importer::Sequence> sequence;  ///< a state that is no tensor
    ValueId length = ir::kNone;                  ///< s64[]: how many tensors of the sequence there are, where data decide it
    bool one_a_step = true;
  };
  Status read_limits();
  Status read_states();
  Status step(std::int64_t at);
  Status take(State& state, const Given& after, const std::string& name, std::size_t i);
  Status take_sequence(State& state, const std::string& name, std::size_t i);
  Status end();
  Status give();
  /// Does step `at` happen? bool[]; kNone: yes.
  ValueId happens(std::int64_t at);
  /// The row that a step collects, where the step happens.
  ValueId taken_row(ValueId row);
  tl::unexpected<Error> endless(std::string_view what) {
    return n_.unsupported("data decide {}, and more than {} nodes would be unrolled for steps that may not happen; {}", what,
                          kMostUnasked, bound_advice(n_));
  }

  /// Steps that are computed although they may not count, where nobody gave a bound.
  [[nodiscard]] std::int64_t unasked() const { return kMostUnasked / std::max(1, body_.node_size()); }

  NodeContext& n_;
  const pb::GraphProto& body_;
  Compose c_;
  std::vector<State> states_;
  std::size_t collected_ = 0;
  std::vector<std::vector<ValueId>> rows_;
  std::vector<DType> row_types_;
  std::optional<Number> trips_;  ///< nothing: no trip count
  std::int64_t most_ = 0;        ///< steps that are unrolled
  std::optional<Sizes::Bound> bound_;
  bool stopped_ = false;               ///< no further step happens
  ValueId go_ = ir::kNone;             ///< bool[]: the condition that data decide; kNone: true
  ValueId active_ = ir::kNone;         ///< of the step
  ValueId done_ = ir::kNone;           ///< s64[]: steps that happened, where data decide it by a condition
  std::int64_t steps_ = 0, sure_ = 0;  ///< unrolled; that happen in every run
};

Status Unrolled::read_limits() {
  Sizes& s = n_.importer().sizes();
  const std::int64_t most = kMostNodes / std::max(1, body_.node_size());
  bound_ = s.given(n_);
  most_ = bound_ ? std::min(bound_->most, most) : most;
  if (n_.has(0) && n_.constant(0) != nullptr) {
    OCTAVO_TRY(const std::int64_t given, n_.constant_integer(0, "the trip count"));
    trips_ = Sizes::number(std::clamp<std::int64_t>(given, 0, 1'000'000'000'000'000));
    if (!n_.has(1) && !bound_) OCTAVO_CHECK(most_steps(n_, body_, trips_->exact()));
  } else if (n_.has(0)) {
    auto numbers = s.elements(n_, n_.in(0));
    if (!numbers && (bound_ || !n_.importer().decided_late(n_))) numbers = s.raw(n_, n_.in(0));
    if (!numbers || numbers->size() != 1) {
      OCTAVO_TRY(const std::int64_t known, n_.constant_integer(0, "the trip count"));  // the error
      return n_.bad("the trip count is {} of {}", known, ir::to_string(n_.type(0)));
    }
    trips_ = numbers->front();
    // A bound of steps counts those that a condition ends too: then no trip count exceeds it by itself.
    if (bound_ && !n_.has(1)) trips_ = s.limited(n_, *trips_, *bound_);
    if (!bound_ && trips_->most > static_cast<double>(unasked())) return endless("its trip count");
  }
  if (n_.has(1) && n_.constant(1) != nullptr) {
    OCTAVO_TRY(const double given, n_.constant_scalar(1, "its condition"));
    stopped_ = given == 0;
  } else if (n_.has(1)) {
    if (!bound_ && n_.importer().decided_late(n_)) {  // the value of an input that the first run binds
      OCTAVO_TRY(const double known, n_.constant_scalar(1, "its condition"));
      stopped_ = known == 0;
    }
    go_ = c_.reshape(n_.in(1), {});
  }
  return c_.status();
}

Status Unrolled::read_states() {
  const auto states = static_cast<std::size_t>(std::max(n_.proto().input_size() - 2, 0));
  if (static_cast<std::size_t>(body_.input_size()) != states + 2 || static_cast<std::size_t>(body_.output_size()) < states + 1)
    return n_.bad("the body takes {} values and gives {}, the node carries {}", body_.input_size(), body_.output_size(), states);
  collected_ = static_cast<std::size_t>(body_.output_size()) - states - 1;
  rows_.resize(collected_);
  row_types_.assign(collected_, DType::f32);
  for (std::size_t i = 0; i < states; ++i) {
    const std::string& name = n_.proto().input(static_cast<int>(i + 2));
    if (const Importer::Sequence* s = name.empty() ? nullptr : n_.importer().sequence(name); s != nullptr) {
      if (s->length != ir::kNone) return n_.unsupported("state {} is a sequence whose length data decide", i);
      states_.push_back({{ir::kNone, DType::f32}, *s});
      continue;
    }
    if (!n_.has(i + 2)) return n_.unsupported("state {} is absent (an optional value)", i);
    states_.push_back({{n_.in(i + 2), n_.declared(i + 2)}, std::nullopt});
  }
  return {};
}

ValueId Unrolled::happens(std::int64_t at) {
  ValueId out = go_;
  if (trips_ && !trips_->known() && trips_->least <= static_cast<double>(at)) {
    const ValueId more = c_.less(c_.integers({}, {at}), n_.importer().sizes().scalar(n_, *trips_));
    out = out == ir::kNone ? more : c_.both(out, more);
  }
  return out;
}

/// Rows behind the last one are cut off: that this one is selected says that nothing needs it in other runs.
ValueId Unrolled::taken_row(ValueId row) {
  if (active_ == ir::kNone || n_.graph().is_constant(row) || n_.type_of(row).dtype != DType::f32) return row;
  return c_.where(active_, row, c_.number(0, row));
}

/// Tensors that the step appends: the first ones are those that steps that happened appended, because none happens behind one that does not.
Status Unrolled::take_sequence(State& state, const std::string& name, std::size_t i) {
  const Importer::Sequence after = *n_.importer().sequence(name);
  state.one_a_step = state.one_a_step && after.size() == state.sequence->size() + 1;
  if (active_ != ir::kNone || state.length != ir::kNone) {
    const Importer::Sequence& before = *state.sequence;
    const auto same = [](const Given& a, const Given& b) { return a.value == b.value; };
    if (after.length != ir::kNone || after.size() < before.size() || !std::equal(before.begin(), before.end(), after.begin(), same))
      return n_.unsupported("data decide its steps, and they change the sequence of state {} otherwise than at its end", i);
    const ValueId more = c_.integers({}, {static_cast<std::int64_t>(after.size() - before.size())});
    const ValueId length = state.length == ir::kNone ? c_.integers({}, {static_cast<std::int64_t>(before.size())}) : state.length;
    state.length = c_.add(length, active_ == ir::kNone ? more : c_.where(active_, more, c_.integers({}, {0})));
  }
  state.sequence = after;
  return {};
}

Status Unrolled::take(State& state, const Given& after, const std::string& name, std::size_t i) {
  if ((after.value == ir::kNone) != state.sequence.has_value())
    return n_.bad("state {} is a sequence before a step or after it, and not both", i);
  if (state.sequence) return take_sequence(state, name, i);
  if (active_ == ir::kNone || after.value == state.given.value) {
    state.given = after;
    return {};
  }
  const TensorType old_type = n_.type_of(state.given.value), new_type = n_.type_of(after.value);
  if (old_type.dtype != new_type.dtype || old_type.shape.size() != new_type.shape.size()) {
    return n_.unsupported("data decide its steps, and state {} is {} before step {} and {} after it", i, ir::to_string(old_type),
                          steps_, ir::to_string(new_type));
  }
  OCTAVO_TRY(const ValueId chosen, selected(n_, c_, active_, after.value, state.given.value));
  state.given = {chosen, after.type};
  return {};
}

Status Unrolled::step(std::int64_t at) {
  std::vector<Given> given{{c_.integers({}, {at}), DType::s64}, {c_.mask({}, {true}), DType::boolean}};
  for (std::size_t i = 0; i < states_.size(); ++i) {
    given.push_back(states_[i].given);
    if (!states_[i].sequence) continue;
    Importer::Sequence whole = *states_[i].sequence;
    whole.length = ir::kNone;  // in a step that happens all are there
    n_.importer().set_sequence(body_.input(static_cast<int>(i + 2)).name(), std::move(whole));
  }
  OCTAVO_TRY(const std::vector<Given> out, n_.importer().inline_body(body_, given, fmt::format("{}/{}/", n_.name(), at)));
  for (std::size_t i = 0; i < states_.size(); ++i)
    OCTAVO_CHECK(take(states_[i], out[i + 1], body_.output(static_cast<int>(i + 1)).name(), i));
  for (std::size_t i = 0; i < collected_; ++i) {
    const Given& row = out[states_.size() + 1 + i];
    if (row.value == ir::kNone) return n_.unsupported("output {} collects sequences", states_.size() + i);
    if (active_ != ir::kNone && n_.importer().sizes().open(row.value))
      return n_.unsupported("output {} collects tensors whose size data decide, in steps that data decide", states_.size() + i);
    rows_[i].push_back(taken_row(row.value));
    row_types_[i] = row.type;
  }
  if (active_ == ir::kNone) {
    ++sure_;
  } else {
    done_ = c_.add(done_ == ir::kNone ? c_.integers({}, {sure_}) : done_, c_.cast(active_, DType::s64));
  }
  const ValueId next = out[0].value;
  const ir::Graph& g = n_.graph();
  if (ir::count(g.type(next).shape) != 1) return n_.bad("the condition after step {} is {}", at, ir::to_string(g.type(next)));
  if (g.is_constant(next)) {
    stopped_ = g.payload(next).at(0) == 0;
  } else {
    const ValueId condition = c_.reshape(next, {});
    go_ = active_ == ir::kNone ? condition : c_.both(active_, condition);  // of a step that does not happen it says nothing
  }
  return c_.status();
}

/// Steps behind the last one that is unrolled are an error: now, or of a run.
Status Unrolled::end() {
  if (stopped_ || (trips_ && trips_->most <= static_cast<double>(steps_))) return {};
  const ValueId more = happens(steps_);
  if (more == ir::kNone || !bound_) {
    if (!trips_) return n_.unsupported("it has no trip count and does not end after {} steps", steps_);
    return n_.unsupported("{} steps of {} nodes; at most {} nodes are unrolled", trips_->most, body_.node_size(), kMostNodes);
  }
  const ValueId all = c_.add(done_ == ir::kNone ? c_.integers({}, {sure_}) : done_, c_.cast(more, DType::s64));
  OCTAVO_CHECK(c_.status());
  Sizes& s = n_.importer().sizes();
  const Number steps = s.count(all, static_cast<double>(sure_), static_cast<double>(steps_ + 1));
  (void)s.limited(n_, steps, {steps_, bound_->tensor});
  return {};
}

Status Unrolled::give() {
  Sizes& s = n_.importer().sizes();
  Number done = Sizes::number(steps_);
  if (done_ != ir::kNone)
    done = go_ == ir::kNone ? *trips_ : s.count(done_, static_cast<double>(sure_), static_cast<double>(steps_));
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (State& state = states_[i]; state.sequence) {
      state.sequence->length = state.length;
      if (state.length != ir::kNone && state.one_a_step && static_cast<std::int64_t>(state.sequence->size()) == steps_)
        state.sequence->length = s.scalar(n_, done);
      n_.importer().set_sequence(n_.proto().output(static_cast<int>(i)), *state.sequence);
      continue;
    }
    n_.set(i, states_[i].given.value);
    n_.declare(i, states_[i].given.type);
  }
  for (std::size_t i = 0; i < collected_; ++i) {
    const std::size_t at = states_.size() + i;
    if (rows_[i].empty()) return n_.unsupported("it takes no step, so the shape of its output {} is not known", at);
    for (ValueId& v : rows_[i]) {
      Shape shape = c_.shape(v);
      shape.insert(shape.begin(), 1);
      v = c_.reshape(v, shape);
    }
    const ValueId all = c_.concat(rows_[i], 0);
    OCTAVO_CHECK(c_.status());
    n_.set(at, done.known() ? all : s.sized(n_, all, 0, done));
    n_.declare(at, row_types_[i]);
  }
  n_.note(done.known() ? fmt::format("unrolled: {} steps", steps_)
                       : fmt::format("unrolled: {} steps, of which data decide how many happen", steps_));
  return c_.status();
}

Status Unrolled::run() {
  OCTAVO_CHECK(read_limits());
  OCTAVO_CHECK(read_states());
  for (; !stopped_ && steps_ < most_; ++steps_) {
    if (trips_ && trips_->most <= static_cast<double>(steps_)) break;
    active_ = happens(steps_);
    for (const ValueId condition : {go_, active_}) {
      if (condition != ir::kNone) n_.importer().sizes().conditions.push_back({condition, false});
    }
    if (go_ != ir::kNone && !bound_ && (!trips_ || trips_->most > static_cast<double>(unasked()))) return endless("its condition");
    OCTAVO_CHECK(c_.status());
    OCTAVO_CHECK(step(steps_));
  }
  OCTAVO_CHECK(end());
  return give();
}

}  // namespace

/// Trip count and condition, then the state; the body gives the next condition, the state and what is collected.
Status loop(NodeContext& n) {
  const pb::GraphProto* body = n.attr_graph("body");
  if (!body) return n.bad("the body is missing");
  return Unrolled(n, *body).run();
}

}  // namespace octavo::onnx
