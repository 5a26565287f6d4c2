#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "quantize/quantize.h"

namespace octavo::quantize {

ir::Ranges Outcome::ranges() const {
  ir::Ranges out;
  for (const TensorRange& t : tensors) out[t.name] = t.quantizer;
  return out;
}

std::set<std::string> Outcome::bfloat16() const {
  std::set<std::string> out;
  for (const LayerResult& l : layers) {
    if (l.bfloat16) out.insert(l.node);
  }
  return out;
}

std::map<std::string, float> Outcome::scales() const {
  std::map<std::string, float> out;
  for (const TensorRange& t : tensors) out[t.name] = static_cast<float>(std::max(-t.interval.lo, t.interval.hi) / 127.0);
  return out;
}

std::string Outcome::report() const {
  using Json = nlohmann::ordered_json;
  const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); };
  Json out;
  out["samples"] = samples;
  out["sqnr_db"] = outputs.empty() ? Json(nullptr) : number(sqnr_of(outputs));
  if (scores) {
    Json changes = Json::object();
    if (scores->minmax) changes = {{name_of(scores->first), number(scores->change)}, {"minmax", number(*scores->minmax)}};
    out["scores_at_objects"] = {
        {"objects", scores->objects}, {"method", name_of(scores->chosen)}, {"mean_change", std::move(changes)}};
  }
  out["outputs"] = Json::array();
  for (const OutputError& o : outputs) out["outputs"].push_back({{"name", o.name}, {"sqnr_db", number(o.sqnr())}});
  out["layers"] = Json::array();
  for (const LayerResult& l : layers) {
    Json j{{"node", l.node},
           {"op", l.op},
           {"input", l.input},
           {"int8", l.int8},
           {"type", l.int8       ? "int8"
                    : l.bfloat16 ? "bfloat16"
                                 : "float32"}};
    if (!l.why_float.empty()) j["why_float"] = l.why_float;
    if (!l.not_fitted.empty()) j["not_fitted"] = l.not_fitted;
    if (l.nearest != 0) j["sqnr_db_nearest"] = l.nearest;
    if (l.fitted != 0) j["sqnr_db"] = l.fitted;
    out["layers"].push_back(std::move(j));
  }
  out["tensors"] = Json::array();
  for (const TensorRange& t : tensors) {
    out["tensors"].push_back({{"name", t.name},
                              {"min", t.min},
                              {"max", t.max},
                              {"method", name_of(t.method)},
                              {"low", t.interval.lo},
                              {"high", t.interval.hi},
                              {"scale", t.quantizer.scale[0]},
                              {"zero_point", t.quantizer.zero_point[0]},
                              {"type", ir::name_of(t.quantizer.type)}});
  }
  out["equalized"] = equalized;
  for (const Gain& g : gains) out["gains"].push_back({{"correction", g.correction}, {"sqnr_db", number(g.sqnr)}});
  if (search) {
    Json j;
    if (search->float_score) j["float_score"] = *search->float_score;
    for (const CurvePoint& p : search->curve) {
      Json point{{"float_layers", p.wide.float32}};
      if (!p.wide.bfloat16.empty()) point["bfloat16_layers"] = p.wide.bfloat16;
      if (!p.without_kernel.empty()) point["priced_as_float32"] = p.without_kernel;
      point.update({{"sqnr_db", number(p.sqnr)}, {"estimated_seconds", p.seconds}, {"chosen", p.chosen}});
      if (p.score) point["score"] = *p.score;
      j["curve"].push_back(std::move(point));
    }
    for (const Sensitivity& s : search->layers) {
      Json layer{{"node", s.node},
                 {"sqnr_db_alone", number(s.sqnr)},
                 {"seconds_saved", s.gain},
                 {"float", s.type == "float32"},
                 {"type", s.type}};
      if (s.sqnr_bfloat16) layer["sqnr_db_alone_bfloat16"] = number(*s.sqnr_bfloat16);
      j["layers"].push_back(std::move(layer));
    }
    out["search"] = std::move(j);
  }
  out["without_range"] = without_range;
  out["warnings"] = warnings;
  return out.dump(1) + "\n";
}

}  // namespace octavo::quantize
