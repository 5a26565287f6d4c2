// One import in progress: names to values, the nodes in order, what could not be lowered.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "onnx/import/folding.h"
#include "onnx/import/import.h"
#include "onnx/import/late_values.h"
#include "onnx/import/node_context.h"
#include "onnx/import/sizes.h"
#include "onnx/model/parsed_parts.h"
#include "onnx/model/schema.h"

namespace octavo::onnx {

inline constexpr std::string_view kReachesNoOutput = "reaches no output";

/// "node 3, Conv": one node that has no lowering, for the one error that lists them all.
struct Problem {
  std::string node, type, domain, reason;
  std::int64_t opset = 0;
  int index = 0;
  bool final = true;                ///< no value of an input would cure it
  std::vector<std::string> inputs;  ///< "x f32[1,3,8,8]"
};

class Importer {
 public:
  /// A model without functions; `constants` as in ParsedParts.
  Importer(const pb::ModelProto& model, const Constants& constants, const ImportOptions& options, std::string base_dir,
           LateValues* late = nullptr)
      : model_(model), constants_(constants), options_(options), base_dir_(std::move(base_dir)), late_(late) {}
  [[nodiscard]] Result<Model> run();
  /// What can be refused before any shape is known: the header, what nothing defines, nodes whose operator has no row.
  [[nodiscard]] Status check();

  // For NodeContext
  [[nodiscard]] ir::Graph& graph() { return out_.graph; }
  [[nodiscard]] Sizes& sizes() { return sizes_; }
  [[nodiscard]] FoldingBudget& folding() { return folding_; }
  [[nodiscard]] const std::string& base_dir() const { return base_dir_; }
  [[nodiscard]] const ImportOptions& options() const { return options_; }
  [[nodiscard]] DType declared(const std::string& tensor, DType fallback) const;
  [[nodiscard]] bool is_read(const std::string& tensor) const { return !tensor.empty() && read_.contains(tensor); }
  void note(std::string text) { out_.notes.push_back(std::move(text)); }
  /// A TensorProto of the file as an IR constant: float types as f32, the file's type in `type`.
  [[nodiscard]] Result<Tensor> tensor(const pb::TensorProto& proto, DType& type);
  /// Lowers a sub-graph (a branch whose condition is known) in place; returns the values of its outputs.
  [[nodiscard]] Result<std::vector<ValueId>> inline_graph(const pb::GraphProto& branch, const std::string& prefix);
  struct Given {
    ValueId value;
    DType type;  ///< the file's
  };
  /// The tensors of a sequence.
  struct Sequence : std::vector<Given> {
    using std::vector<Given>::vector;
    ValueId length = ir::kNone;  ///< s64[]: how many of them there are, the first ones, where data decide it; kNone: all
  };
  /// Null: no sequence has the name.
  [[nodiscard]] const Sequence* sequence(const std::string& name) const {
    const auto at = sequences_.find(name);
    return at == sequences_.end() ? nullptr : &at->second;
  }
  void set_sequence(const std::string& name, Sequence s) { sequences_[name] = std::move(s); }
  /// Would the value of a small input of the model tell what the node must know? Then that is bound instead (late_values.h).
  [[nodiscard]] bool decided_late(const NodeContext& node) const;
  /// The same for a body that is lowered several times: its inputs are `given`; the names inside it are forgotten afterwards.
  [[nodiscard]] Result<std::vector<Given>> inline_body(const pb::GraphProto& body, const std::vector<Given>& given,
                                                       const std::string& prefix);

 private:
  [[nodiscard]] Status read_header();
  [[nodiscard]] Status declare_inputs();
  [[nodiscard]] Status check_operators();
  [[nodiscard]] Status add_initializers(const pb::GraphProto& graph);
  /// Live nodes in an order in which producers come first; bad_model: a cycle, a missing tensor, a name defined twice.
  [[nodiscard]] Result<std::vector<int>> sort_nodes(const pb::GraphProto& graph, bool all_live);
  [[nodiscard]] Status lower_nodes(const pb::GraphProto& graph, const std::vector<int>& order, const std::string& prefix);
  [[nodiscard]] Status lower_node(NodeContext& node);
  /// Types that only store go through operators that cast, quantize or move.
  [[nodiscard]] Status refuse_small(const NodeContext& node) const;
  /// float64 operands of the operators that the IR computes in float64 become that. True if there are any.
  [[nodiscard]] bool widen(NodeContext& node);
  /// Results in float64 are held in float32 beside that, for every other operator.
  void narrow(NodeContext& node);
  [[nodiscard]] Status bind_results(NodeContext& node);
  /// What is given (ImportOptions::max_elements) of a tensor that is now defined. (sizes_given.cc)
  [[nodiscard]] Result<ValueId> bounded(NodeContext& node, const std::string& tensor, ValueId v);
  /// usage: a bound of nothing whose size data decide. (sizes_given.cc)
  [[nodiscard]] Status bounds_used() const;
  void record_problem(const NodeContext& node, std::string reason);
  /// A node that could not be lowered, with what the values of inputs have to do with it. (late_values.cc)
  void record_late(const NodeContext& node, std::string reason);
  /// The shapes that the options give, and those of the values; usage where a value does not fit its input. (late_values.cc)
  [[nodiscard]] Result<ImportOptions> with_values() const;
  /// The inputs of the model that alone decide the operands that the node must know, where they are few and small; else none, and in
  /// `data` what is too large. (late_values.cc)
  [[nodiscard]] std::set<std::string> late_inputs(const NodeContext& node, std::string& data) const;
  /// A TensorProto of the file in its own type; large constants are shared.
  [[nodiscard]] Result<Tensor> value_of(const pb::TensorProto& proto) const;
  /// A tensor in the file's type as the IR holds it.
  [[nodiscard]] static Tensor as_held(Tensor t);
  [[nodiscard]] Result<ValueId> resolve(const std::string& tensor);
  [[nodiscard]] std::string unique_name(const pb::NodeProto& node, int index, const std::string& prefix);
  [[nodiscard]] std::int64_t opset_of(const std::string& domain) const;
  [[nodiscard]] Status bind_outputs();
  /// Makes outputs of the counts by which operands are read, and numbers them. `counts`: outputs that are counts already.
  void publish_counts(std::map<ValueId, int>& counts);
  [[nodiscard]] Error problem_report() const;
  void list_absorbed();

  const pb::ModelProto& model_;
  const Constants& constants_;
  const ImportOptions& options_;
  std::string base_dir_;
  Model out_;
  std::unordered_map<std::string, ValueId> values_;
  std::unordered_map<std::string, Sequence> sequences_;
  std::unordered_map<std::string, DType> declared_;  ///< types of the file, where the IR holds the value in another
  std::unordered_map<ValueId, ValueId> wide_;        ///< float64 values: (as f32, as f64)
  std::unordered_map<std::string, const pb::TensorProto*> initializers_;
  std::unordered_map<const pb::TensorProto*, const Tensor*> outside_;  ///< initializers whose bytes lie in constants_
  std::unordered_set<std::string> read_;                               ///< tensors that a live node or an output reads
  std::unordered_set<std::string> poisoned_;                           ///< results of nodes that could not be lowered
  std::unordered_set<std::string> node_names_;
  std::vector<Problem> problems_;
  LateValues* late_;                                        ///< may be null: no input has a value
  std::set<std::string> needed_;                            ///< inputs whose values nodes could not do without
  std::vector<std::pair<std::string, std::string>> fates_;  ///< every node's name; why nothing may stand for it ("" until known)
  Sizes sizes_;
  FoldingBudget folding_;
  int depth_ = 0;
  std::string value_prefix_;  ///< of the values of a body that is lowered several times
};

/// The inputs that are not initializers.
[[nodiscard]] Description describe(const pb::ModelProto& model);
[[nodiscard]] Result<std::vector<InputInfo>> declared_inputs(const pb::GraphProto& graph);
/// The model with its functions inlined: itself where it has none, else `copy`.
[[nodiscard]] Result<const pb::ModelProto*> without_functions(const pb::ModelProto& model, std::optional<pb::ModelProto>& copy);
/// Every tensor a node reads, those captured by its sub-graphs included.
void collect_reads(const pb::NodeProto& node, std::vector<std::string>& out);

}  // namespace octavo::onnx
