#include "report/trex.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/causes/plan_regions.h"
#include "base/hash.h"
#include "region/key.h"
#include "region/reason_json.h"
#include "region/stage_graph.h"
#include "report/costs.h"
#include "report/decisions.h"
#include "report/epilogue.h"
#include "report/schema.h"
#include "report/sentences.h"

namespace octavo::report {
namespace {

using nlohmann::json;
using region::Plan;
using region::Region;
using region::Stage;
using region::TensorRef;

bool channels_last(const TensorRef& t) {
  return t.dims.size() >= 3 && t.dims[1] > 1 && t.strides[1] == 1;
}

/// One of the strings that trex knows; the exact layout stands beside it.
std::string format_of(const TensorRef& t) {
  const bool dense = t.strides == ir::dense_strides(t.dims), nhwc = channels_last(t);
  if (ir::is_int8(t.dtype) && t.quantizer) return nhwc ? "Channel major Int8 format" : dense ? "Row major Int8 format" : "Int8";
  switch (t.dtype) {
    case ir::DType::f32: return dense ? "Row major linear FP32" : "Float";
    case ir::DType::f16:
      return dense                        ? "Row major linear FP16 format"
             : nhwc && t.dims[1] % 8 == 0 ? "Channel major FP16 format where channel % 8 == 0"
                                          : "Half";
    case ir::DType::bf16: return dense ? "Row major linear BFloat16 format" : "BFloat16";
    case ir::DType::u8: return dense ? "Row major linear UInt8 format" : "UInt8";
    case ir::DType::s8: return "Int8";
    case ir::DType::boolean: return "Bool";
    default: return "Int32";
  }
}

std::string type_name(ir::DType t) {
  switch (t) {
    case ir::DType::f32: return "Float";
    case ir::DType::f16: return "Half";
    case ir::DType::bf16: return "BFloat16";
    case ir::DType::s8: return "Int8";
    case ir::DType::u8: return "UInt8";
    case ir::DType::boolean: return "Bool";
    case ir::DType::s64: return "Int64";
    default: return "Int32";
  }
}

json tensor(const TensorRef& t, const Plan& plan) {
  const bool coded = t.quantizer && ir::is_int8(t.dtype);
  return {{"Name", t.value.empty() ? "unnamed" : t.value},
          {"Location", "Device"},
          {"Dimensions", t.dims},
          {"Format/Datatype", format_of(t)},
          {"OctavoType", coded ? ir::to_string(ir::TensorType{t.dtype, {}}) + " codes" : std::string(ir::name_of(t.dtype))},
          {"OctavoLayout", place_of(t, plan)}};
}

bool constant(const Plan& plan, const TensorRef& t) {
  return plan.buffers[static_cast<std::size_t>(t.buffer)].kind == region::BufferKind::constant;
}

/// Unique, also where a region is called as another one's second; and none that ends like the name of another shape profile.
std::vector<std::string> layer_names(const Plan& plan) {
  std::vector<std::string> out;
  std::set<std::string> seen;
  for (const Region& r : plan.regions) {
    std::string base = r.name.empty() ? "unnamed" : r.name;
    if (const auto at = base.rfind("[profile "); at != std::string::npos && base.ends_with(']')) base[at] = '(', base.back() = ')';
    std::string name = base;
    for (int n = 2; !seen.insert(name).second; ++n) name = fmt::format("{} ({})", base, n);
    out.push_back(name);
  }
  return out;
}

void padding(json& j, const ir::Window& w, const std::string& prefix) {
  const auto half = static_cast<std::ptrdiff_t>(w.pads.size() / 2);
  j[prefix + "PrePadding"] = ir::Shape(w.pads.begin(), w.pads.begin() + half);
  j[prefix + "PostPadding"] = ir::Shape(w.pads.begin() + half, w.pads.end());
}

void convolution(json& j, const Stage& s, const Plan& plan, const std::string& prefix) {
  const region::Anchor& a = s.anchor;
  const TensorRef& w = *a.weights;
  const auto& window = a.as<ir::Window>();
  j[prefix + "Kernel"] = ir::Shape(w.dims.begin() + 2, w.dims.end());
  j[prefix + "PaddingMode"] = "kEXPLICIT_ROUND_DOWN";
  padding(j, window, prefix);
  j[prefix + "Stride"] = window.strides;
  j[prefix + "Dilation"] = window.dilations;
  j[prefix + "OutMaps"] = s.space[1];
  j[prefix + "Groups"] = window.group;
  j["Weights"] = {{"Type", a.integer ? "Int8" : "Float"}, {"Count", ir::count(w.dims)}};
  const EpilogueSummary e = epilogue_of(s, plan);
  j["Bias"] = {{"Type", "Float"}, {"Count", e.bias}};
  j["HasBias"] = e.bias > 0 ? 1 : 0;
  j["HasSparseWeights"] = 0;
  j["Activation"] = name_of(e.activation);
  j["HasReLU"] = e.activation == Activation::none ? 0 : 1;
}

/// Each output channel reads one input channel of its own.
bool depthwise(const Stage& s) {
  if (s.anchor.op != ir::Op::conv) return false;
  const auto groups = s.anchor.as<ir::Window>().group;
  return groups > 1 && s.anchor.weights->dims[1] == 1 && groups == s.anchor.inputs[0].dims[1];
}

void pooling(json& j, const Stage& s, const std::string& prefix) {
  const region::Anchor& a = s.anchor;
  const auto& window = a.as<ir::Window>();
  j[prefix + "PoolingType"] = a.op == ir::Op::max_pool ? "MAX" : "AVERAGE";
  j[prefix + "WindowSize"] = window.kernel;
  j[prefix + "PaddingMode"] = "kEXPLICIT_ROUND_DOWN";
  padding(j, window, prefix);
  j[prefix + "Stride"] = window.strides;
  j[prefix + "BlendFactor"] = 0;
  j[prefix + "AverageCountExcludesPadding"] = window.count_include_pad ? 0 : 1;
}

void describe(json& j, const Region& r, const Plan& plan) {
  const auto kind = [&](const char* layer, const char* parameter) {
    j["LayerType"] = layer;
    j["ParameterType"] = parameter;
  };
  const auto anchored = std::find_if(r.stages.begin(), r.stages.end(), [](const Stage& s) { return !s.anchor.none(); });
  if (anchored == r.stages.end() || (anchored->anchor.op == ir::Op::reshape && r.precision == region::Work::move)) {
    const bool recodes = r.precision.has_codes();
    const ReasonValue view = std::vector<std::string>{"view"};
    const bool pure = recodes && std::any_of(r.reasons.begin(), r.reasons.end(), [&](const Reason& why) {
                        return why.cause == cause::pointwise_pass && why.values[0] == view;
                      });
    if (r.precision == region::Work::move || pure) {
      kind("Reformat", "Reformat");
      j["Origin"] = pure ? "QDQ" : "REFORMAT";
      return;
    }
    kind("PointWiseV2", "PointWise");
    j["ParameterSubType"] = "PointWiseExpression";
    j["NbInputArgs"] = r.stages[0].operands.size();
    j["InputArgs"] = json::array();
    for (std::size_t i = 0; i < r.stages[0].operands.size(); ++i) j["InputArgs"].push_back(fmt::format("arg{}", i));
    j["Operations"] = json::array({program::print(r.stages[0].program)});
    j["NbOperations"] = 1;
    return;
  }
  const Stage& s = *anchored;
  const auto pool = std::find_if(r.stages.begin(), r.stages.end(),
                                 [](const Stage& t) { return t.anchor.op == ir::Op::max_pool || t.anchor.op == ir::Op::avg_pool; });
  switch (s.anchor.op) {
    case ir::Op::conv:
    case ir::Op::gemm:
    case ir::Op::conv_transpose:
      if (!s.anchor.weights) break;
      if (pool != r.stages.end() && !r.independent) {
        kind("ConvActPool", "ConvActPool");
        convolution(j, s, plan, "Conv");
        pooling(j, *pool, "Pooling");
        return;
      }
      if (s.anchor.op == ir::Op::conv_transpose) {
        kind("CaskDeconvolutionV2", "Deconvolution");
      } else if (depthwise(s)) {
        kind("CudaDepthwiseConvolution", "Convolution");
      } else {
        kind("CaskConvolution", "Convolution");
      }
      j["ParameterSubType"] = j["ParameterType"];
      return convolution(j, s, plan, "");
    case ir::Op::max_pool:
    case ir::Op::avg_pool: kind("TiledPooling", "Pooling"); return pooling(j, s, "");
    case ir::Op::softmax: return kind("CaskSoftMaxV2", "SoftMax");
    case ir::Op::resize_linear:
      kind("Resize", "Resize");
      j["ResizeMode"] = "kLINEAR";
      return;
    case ir::Op::matmul: return kind("CaskGemmMatrixMultiply", "MatrixMultiply");
    case ir::Op::transpose:
    case ir::Op::reshape:
    case ir::Op::gather: return kind("Shuffle", "Shuffle");
    default: break;
  }
  const std::string op(ir::name_of(s.anchor.op));
  kind("kgen", "kgen");
  j["ParameterType"] = op;
}

json layer(const Region& r, const Plan& plan, const std::string& name) {
  json j = {{"Name", name},
            {"Inputs", json::array()},
            {"Outputs", json::array()},
            {"TacticName", r.tactic.name()},
            {"TacticValue", fmt::format("0x{:016x}", hash64(r.tactic.name()))},
            {"OctavoPrecision", to_string(r.precision)},
            {"OctavoReason", sentences(r.reasons)},
            {"OctavoReasons", region::to_json(r.reasons)},
            {"OctavoKey", region::key_of(r, plan)}};
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    const Stage& stage = r.stages[s];
    for (const TensorRef& t : stage.anchor.inputs) {
      if (!constant(plan, t) && !region::forwarded(r, s, t)) j["Inputs"].push_back(tensor(t, plan));
    }
    for (const region::Operand& o : stage.operands) {
      if (!constant(plan, o.ref) && !region::forwarded(r, s, o.ref)) j["Inputs"].push_back(tensor(o.ref, plan));
    }
  }
  for (const TensorRef* t : region::results_of(r)) j["Outputs"].push_back(tensor(*t, plan));
  std::string metadata;
  for (const std::string& node : r.onnx_nodes) metadata += fmt::format("{}[ONNX Layer: {}]", metadata.empty() ? "" : "\x1e", node);
  j["Metadata"] = metadata;
  describe(j, r, plan);
  return j;
}

std::string dumped(const json& j) {
  return j.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[std::min(v.size() - 1, static_cast<std::size_t>(q * static_cast<double>(v.size())))];
}

}  // namespace

std::string layer_info(const Plan& plan, LayerDetail detail) {
  json out = {{"Layers", json::array()}, {"Bindings", json::array()}, {"I/O Tensors", json::array()}, {"OctavoSchema", kSchema}};
  const auto names = layer_names(plan);
  for (std::size_t i = 0; i < plan.regions.size() && detail != LayerDetail::none; ++i)
    out["Layers"].push_back(detail == LayerDetail::names ? json(names[i]) : layer(plan.regions[i], plan, names[i]));
  const auto bind = [&](const std::vector<region::Binding>& list, const char* mode) {
    for (const region::Binding& b : list) {
      TensorRef t;
      t.dtype = b.type.dtype;
      t.dims = b.type.shape;
      t.strides = b.strides.empty() ? ir::dense_strides(t.dims) : b.strides;
      t.quantizer = b.quantizer;
      out["Bindings"].push_back(b.name);
      out["I/O Tensors"].push_back({{"Name", b.name},
                                    {"IOMode", mode},
                                    {"DataType", type_name(b.type.dtype)},
                                    {"Dimensions", b.type.shape},
                                    {"Location", "Host"},
                                    {"IsShapeInferenceIO", false},
                                    {"ProfileInfo", json::array({{{"MinShape", b.type.shape},
                                                                  {"OptShape", b.type.shape},
                                                                  {"MaxShape", b.type.shape},
                                                                  {"Format", format_of(t)}}})}});
    }
  };
  bind(plan.inputs, "Input");
  bind(plan.outputs, "Output");
  return dumped(out);
}

std::string profile(const Plan& plan, const std::vector<LayerTimes>& layers, int runs) {
  const auto names = layer_names(plan);
  const double whole = std::accumulate(layers.begin(), layers.end(), 0.0, [](double t, const LayerTimes& l) { return t + l.mean; });
  json out = json::array({{{"count", runs}}});
  for (std::size_t i = 0; i < names.size(); ++i) {
    out.push_back({{"name", names[i]},
                   {"timeMs", layers[i].mean * runs * 1e3},
                   {"averageMs", layers[i].mean * 1e3},
                   {"medianMs", layers[i].median * 1e3},
                   {"percentage", whole > 0 ? 100 * layers[i].mean / whole : 0}});
  }
  return dumped(out);
}

std::string times(const std::vector<RunTime>& runs) {
  json out = json::array();
  for (const RunTime& r : runs) {
    const double start = r.start * 1e3, end = r.end * 1e3;
    out.push_back({{"startEnqMs", start},
                   {"endEnqMs", end},
                   {"startH2dMs", start},
                   {"endH2dMs", start},
                   {"startComputeMs", start},
                   {"endComputeMs", end},
                   {"startD2hMs", end},
                   {"endD2hMs", end},
                   {"h2dMs", 0.0},
                   {"computeMs", end - start},
                   {"d2hMs", 0.0},
                   {"latencyMs", end - start}});
  }
  return dumped(out);
}

std::string outputs(const Plan& plan, const std::vector<ir::Tensor>& values) {
  json out = json::array();
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::string dims;
    for (const auto d : values[i].shape()) dims += fmt::format("{}{}", dims.empty() ? "" : "x", d);
    json numbers = json::array();
    for (std::int64_t k = 0; k < values[i].size(); ++k) numbers.push_back(static_cast<double>(values[i].at(k)));
    out.push_back({{"name", plan.outputs[i].name}, {"dimensions", dims}, {"values", std::move(numbers)}});
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string profile_metadata(const Plan& plan, const std::vector<RunTime>& runs, const std::string& device) {
  std::vector<double> latency;
  for (const RunTime& r : runs) latency.push_back((r.end - r.start) * 1e3);
  const double wall = runs.empty() ? 0 : runs.back().end - runs.front().start;
  const double mean =
      latency.empty() ? 0 : std::accumulate(latency.begin(), latency.end(), 0.0) / static_cast<double>(latency.size());
  const json five = {quantile(latency, 0), quantile(latency, 1), mean, quantile(latency, 0.5), quantile(latency, 0.99)};
  const json none = {0, 0, 0, 0, 0};
  return dumped({{"performance_summary",
                  {{"Throughput", wall > 0 ? static_cast<double>(runs.size()) / wall : 0},
                   {"Latency", five},
                   {"Enqueue Time", five},
                   {"H2D Latency", none},
                   {"GPU Compute Time", five},
                   {"D2H Latency", none},
                   {"Total Host Walltime", wall},
                   {"Total GPU Compute Time", mean * static_cast<double>(latency.size()) / 1e3}}},
                 {"inference_options", {{"Threads", region::threads_of(plan)}}},
                 {"device_information", {{"Selected Device", device}}}});
}

std::string build_metadata(const Plan& plan, const BuildOptions& o) {
  std::set<std::string> precisions;  // as trtexec lists them; FP32 is always possible
  for (const Region& r : plan.regions) {
    if (r.precision.has_codes()) precisions.insert("INT8");
    if (r.precision.has(ir::DType::bf16)) precisions.insert("BF16");
    if (r.precision.has(ir::DType::f16)) precisions.insert("FP16");
  }
  std::string precision = "FP32";
  for (const std::string& p : precisions) precision += "+" + p;
  const auto shapes = [](const std::vector<region::Binding>& list) {
    json out = json::object();
    for (const region::Binding& b : list) out[b.name] = fmt::format("{}", fmt::join(b.type.shape, "x"));
    return out;
  };
  return dumped({{"model_options", {{"Format", "ONNX"}, {"Model", o.model}}},
                 {"build_options",
                  {{"Precision", precision},
                   {"Builder optimization level", o.effort},
                   {"Threads", plan.threads},
                   {"Timing cache", o.timing_cache},
                   {"Calibration", o.calibration},
                   {"Costs", plan.cost_source},
                   {"Save engine", o.engine},
                   {"Input shapes", shapes(plan.inputs)},
                   {"Output shapes", shapes(plan.outputs)}}},
                 {"device_information", {{"Selected Device", o.device}}}});
}

}  // namespace octavo::report
