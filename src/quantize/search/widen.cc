// A quantization's layers in wider types, until the bound on the accuracy holds.
#include <fmt/format.h>

#include <algorithm>

#include "quantize/run.h"
#include "quantize/search/laboratory.h"

namespace octavo::quantize {

Status Run::find_bfloat16() {
  if (!options_.bound.given() || !options_.allowed.contains("bfloat16")) return {};
  OCTAVO_TRY(bfloat16_, bfloat16_layers(model_));
  const std::size_t without = bfloat16_->without_kernel.size(), count = bfloat16_->possible.size();
  if (without == 0) return {};
  if (options_.needs_kernels && without == count)
    return fail(ErrorKind::unsupported,
                fmt::format("allowed type \"bfloat16\": no layer can compute in it on this processor: {}\n  write a model, for a "
                            "processor that can: -o model.q.onnx; or leave bfloat16 out",
                            bfloat16_->why));
  made_.out.warnings.push_back(
      fmt::format("{} of the {} layers that may be bfloat16 have no kernel for it here ({}): {}", without, count, bfloat16_->why,
                  options_.needs_kernels ? "they do not go to it" : "in estimated times they count as float32"));
  return {};
}

Status Run::search() {
  const auto make = [&](const std::set<std::string>& in_float) -> Result<onnx::Model> {
    set_float(in_float);
    OCTAVO_TRY(const auto put, write());
    (void)put;
    return onnx::import_model(*made_.out.model, options_.import);
  };
  Searched what{.exact = reference(),
                .layers = {},
                .make = make,
                .bfloat16 = bfloat16_ ? &*bfloat16_ : nullptr,
                .needs_kernels = options_.needs_kernels,
                .may_float32 = options_.allowed.contains("float32"),
                .data = data_,
                .threads = options_.threads,
                .bound = options_.bound,
                .score = options_.score,
                .progress = options_.progress};
  for (const LayerResult& l : made_.out.layers) {
    if (l.int8) what.layers.push_back(l.node);
  }
  OCTAVO_TRY(made_.out.search, search_layers(what));
  std::set<std::string> chosen;
  for (const Sensitivity& s : made_.out.search->layers) {
    if (s.type != "int8") chosen.insert(s.node);
  }
  set_float(chosen);
  OCTAVO_TRY(const auto put, write());
  for (LayerResult& l : made_.out.layers) {
    if (!l.int8 || put.quantized.contains(l.node)) continue;
    l.int8 = false;
    const auto at = std::find_if(made_.out.search->layers.begin(), made_.out.search->layers.end(),
                                 [&](const Sensitivity& s) { return s.node == l.node; });
    l.bfloat16 = at->type == "bfloat16";
    l.why_float = fmt::format("{} to keep the bound: with only this layer in int8, the outputs have {:.1f} dB",
                              l.bfloat16 ? "bfloat16" : "kept", at->sqnr);
    if (at->sqnr_bfloat16) l.why_float += fmt::format(", alone in bfloat16 {:.1f} dB", *at->sqnr_bfloat16);
  }
  return {};
}

void Run::set_float(std::set<std::string> nodes) {
  made_.keep_float = std::move(nodes);
  for (const auto& [node, kept] : made_.lossy) made_.keep_float.insert(node);
}

}  // namespace octavo::quantize
