#include "api/open_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "api/load.h"
#include "api/open_model.h"
#include "engine/cores.h"
#include "engine/set.h"
#include "plan/decided_json.h"

namespace octavo::api {
namespace {

using nlohmann::json;

json write(const std::vector<onnx::InputInfo>& list) {
  json out = json::array();
  for (const onnx::InputInfo& in : list) {
    out.push_back({{"name", in.name}, {"dtype", ir::name_of(in.dtype)}, {"dims", in.dims}, {"symbols", in.symbols}});
    if (!in.has_shape) out.back().erase("dims");
  }
  return out;
}

std::vector<onnx::InputInfo> read_infos(const json& list) {
  std::vector<onnx::InputInfo> out;
  for (const json& j : list) {
    onnx::InputInfo& in = out.emplace_back();
    in.name = j.at("name").get<std::string>();
    (void)ir::parse_dtype(j.at("dtype").get<std::string>(), in.dtype);
    in.has_shape = j.contains("dims");
    if (in.has_shape) in.dims = j["dims"].get<ir::Shape>();
    in.symbols = j.at("symbols").get<std::vector<std::string>>();
  }
  return out;
}

tl::unexpected<Error> bad(const engine::EngineFile& file, std::string_view what) {
  return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": what it says of its range cannot be read: {}", file.name(), what));
}

Result<json> parsed(const engine::EngineFile& file) {
  const auto open = file.open_sections();
  if (!open) return fail(ErrorKind::usage, fmt::format("engine \"{}\": it serves no range of shapes", file.name()));
  json j = json::parse(open->text.begin(), open->text.end(), nullptr, /*allow_exceptions=*/false);
  if (!j.is_object()) return bad(file, "it is no JSON");
  return j;
}

Result<OpenInputs> inputs_from(const json& j, const engine::EngineFile& file) {
  try {
    OpenInputs out;
    out.inputs = read_infos(j.at("inputs"));
    out.outputs = read_infos(j.at("outputs"));
    for (const auto& [name, ends] : j.at("ranges").items()) {
      const ShapeRange range{ends.at(0).get<ir::Shape>(), ends.at(1).get<ir::Shape>(), ends.at(2).get<ir::Shape>()};
      const auto in = std::find_if(out.inputs.begin(), out.inputs.end(), [n = &name](const auto& i) { return i.name == *n; });
      if (!range.sound() || in == out.inputs.end() || (in->has_shape && in->dims.size() != range.min.size()))
        return bad(file, fmt::format("the range of \"{}\"", name));
      out.ranges[name] = range;
    }
    return out;
  } catch (const json::exception& e) {
    return bad(file, e.what());
  }
}

/// The machine code that plans of the file share.
Result<KeptCodes> codes_of(const json& j, const engine::OpenSections& sections, std::size_t plans, const engine::EngineFile& file) {
  KeptCodes out;
  const auto section = sections.data.find(static_cast<std::uint32_t>(plans));
  std::span<const std::byte> left = section == sections.data.end() ? std::span<const std::byte>() : section->second;
  for (const json& size : j.value("codes", json::array())) {
    const auto bytes = size.get<std::size_t>();
    if (bytes > left.size()) return bad(file, "machine code is cut off");
    auto code = std::make_shared<engine::AlignedBytes>(bytes);
    std::copy_n(left.begin(), bytes, code->data());
    out.of.push_back(std::move(code));
    left = left.subspan(bytes);
  }
  if (!left.empty()) return bad(file, fmt::format("{} bytes behind its machine code", left.size()));
  return out;
}

}  // namespace

std::string range_text(const ShapeRanges& ranges) {
  std::string out;
  for (const auto& [name, range] : ranges)
    out += fmt::format("{}{} {} to {}", out.empty() ? "" : ", ", name, ir::to_string(range.min), ir::to_string(range.max));
  return out;
}

Result<OpenInputs> open_inputs(const engine::EngineFile& file) {
  OCTAVO_TRY(const json j, parsed(file));
  return inputs_from(j, file);
}

Status OpenModel::save(const std::string& path, const engine::Notes& notes, const std::string& private_key) const {
  if (!ranged()) return fail(ErrorKind::usage, fmt::format("save \"{}\": the model has no range of shapes", path));
  if (!late().empty())
    return fail(ErrorKind::usage,
                fmt::format("save \"{}\": shapes also depend on values of inputs, which a file for a range cannot "
                            "follow\n  to do: name the sets that occur: --shapes and --values",
                            path));
  const auto donors = [&] {
    const std::lock_guard lock(fork_safe_mutex());
    return donors_;
  };
  if (donors().empty()) {  // at effort 0 nothing was tuned
    PipelineOptions options = options_;
    options.import.shapes = complete(opt());
    onnx::LateValues none{values_, {}};
    OCTAVO_TRY(const auto session, this->session());
    OCTAVO_TRY(const Built built, session->build(options, none));
    OCTAVO_CHECK(adopt(options.import.shapes, built));
  }
  OCTAVO_CHECK(cover_range());
  std::vector<Donor> all = donors();
  std::sort(all.begin(), all.end(), [](const Donor& a, const Donor& b) { return a.shapes < b.shapes; });
  engine::Engines engines;
  json plans = json::array();
  std::vector<std::vector<std::byte>> data;
  KeptCodes codes;
  for (const Donor& d : all) {
    for (std::size_t i = 0; i < d.decided.size(); ++i) {
      if (d.bases[i] == nullptr) continue;
      engines.push_back(d.bases[i]);
      json& plan = plans.emplace_back(
          json{{"shapes", d.shapes}, {"decided", plan::to_json(*d.decided[i])}, {"tuned", d.bases[i]->plan().decided_for.empty()}});
      data.emplace_back();
      if (d.resizers[i] != nullptr)
        plan["follows"] = d.resizers[i]->to_json(data.back(), codes);
      else
        plan["why"] = d.why_planned;
    }
  }
  const std::string why = why_planned();
  if (!why.empty() && engines.front()->origin().model == nullptr)
    return fail(ErrorKind::usage,
                fmt::format("save \"{}\": shapes between those that were tuned have to be planned, and the model, which "
                            "that takes, is not kept\n  why: {}\n  to do: leave out --no-model (keep_model=False)",
                            path, why));
  json ranges = json::object();
  for (const auto& [name, range] : ranges_) ranges[name] = {range.min, range.opt, range.max};
  PipelineOptions said = options_;
  said.import.shapes.clear();
  if (said.plan.threads == 0) said.plan.threads = engine::available_cores();
  json sizes = json::array();
  std::vector<std::byte> all_codes;
  for (const auto& code : codes.of) {
    sizes.push_back(code->size());
    all_codes.insert(all_codes.end(), code->data(), code->data() + code->size());
  }
  const std::string text = json{{"codes", sizes},   {"inputs", write(inputs_)},        {"outputs", write(outputs_)},
                                {"ranges", ranges}, {"options", build_text(said, {})}, {"plans", plans}}
                               .dump(-1, ' ', false, json::error_handler_t::replace);
  std::vector<engine::Section> sections{{engine::section::kOpen, 0, std::as_bytes(std::span(text))}};
  for (std::size_t k = 0; k < data.size(); ++k) {
    if (!data[k].empty()) sections.push_back({engine::section::kOpenData, static_cast<std::uint32_t>(k), data[k]});
  }
  if (!all_codes.empty()) sections.push_back({engine::section::kOpenData, static_cast<std::uint32_t>(data.size()), all_codes});
  return engine::save_open(path, engines, sections, notes, private_key);
}

Result<std::unique_ptr<OpenModel>> OpenModel::of_file(const engine::EngineFile& file, engine::Engines engines,
                                                      const engine::Providers& providers, const LoadRequest& request) {
  std::unique_ptr<OpenModel> m(new OpenModel);
  OCTAVO_TRY(const json j, parsed(file));
  OCTAVO_TRY(OpenInputs open, inputs_from(j, file));
  m->file_ = file.name();
  m->source_ = engines.front()->origin().model;
  m->inputs_ = std::move(open.inputs);
  m->outputs_ = std::move(open.outputs);
  m->ranges_ = std::move(open.ranges);
  m->open_ = true;
  m->bytes_ = std::make_shared<const std::vector<std::byte>>();
  const auto same_inputs = [&](const region::Plan& plan) {
    return std::equal(
        plan.inputs.begin(), plan.inputs.end(), m->inputs_.begin(), m->inputs_.end(),
        [](const region::Binding& b, const onnx::InputInfo& in) { return b.name == in.name && b.type.dtype == in.dtype; });
  };
  const auto sections = file.open_sections();
  try {
    const json& plans = j.at("plans");
    if (!plans.is_array() || plans.size() != engines.size())
      return bad(file, fmt::format("it lists {} plans, the file has {}", plans.size(), engines.size()));
    OCTAVO_TRY(const KeptCodes codes, codes_of(j, *sections, engines.size(), file));
    for (std::size_t k = 0; k < engines.size(); ++k) {
      const auto& engine = engines[k];
      if (!same_inputs(engine->plan())) return bad(file, fmt::format("plan {} has other inputs", k));
      OCTAVO_TRY(ReadBuild build, options_again(j.at("options").get<std::string>(), file.name(), request));
      PipelineOptions options = std::move(build.options);
      options.source = m->source_;
      options.keep_model = m->source_ != nullptr;
      options.notes = engine->notes();
      OCTAVO_TRY(plan::Decided decided, plan::decided_from_json(plans[k].at("decided")));
      plan::keep_tactics(engine->plan(), decided);
      const auto shared = std::make_shared<const plan::Decided>(std::move(decided));
      const Shapes shapes = plans[k].at("shapes").get<Shapes>();
      if (m->donors_.empty() || m->donors_.back().shapes != shapes) m->donors_.push_back({shapes, {}, {}, {}, {}});
      Donor& donor = m->donors_.back();
      donor.decided.push_back(shared);
      donor.bases.push_back(engine);
      donor.resizers.emplace_back();
      if (plans[k].contains("follows")) {
        const auto longer = sections->data.find(static_cast<std::uint32_t>(k));
        Resizer::Kept kept{{}, request.rebuild_code ? nullptr : &codes, {}};
        if (longer != sections->data.end()) kept.data = longer->second;
        if (engine->plan().devices.size() > 1) kept.providers = providers;
        auto resizer = Resizer::from_json(plans[k]["follows"], kept, options, engine, shared);
        if (!resizer) return bad(file, resizer.error().message);
        donor.resizers.back() = std::move(*resizer);
      } else {
        donor.why_planned = plans[k].at("why").get<std::string>();
      }
      if (k == 0) {
        m->options_ = options;
        m->options_.import.shapes.clear();
      }
      Entry& entry = m->built_[{m->complete(shapes), {}}];
      if (entry.engine == nullptr) entry.engine = engine;
      entry.building = false, entry.tuned = engine->plan().decided_for.empty(), entry.used = ++m->clock_;
    }
  } catch (const json::exception& e) {
    return bad(file, e.what());
  }
  m->resources_ = std::make_shared<engine::RunResources>(m->most_arena_bytes());
  for (const Donor& donor : m->donors_) {
    for (const auto& resizer : donor.resizers) {
      if (resizer != nullptr) resizer->expect_arenas(m->resources_->devices);
    }
  }
  return m;
}

Result<std::shared_ptr<const OpenModel>> rebuild_open(const std::shared_ptr<const engine::EngineFile>& file,
                                                      const LoadRequest& request) {
  OCTAVO_TRY(OpenInputs open, open_inputs(*file));
  OCTAVO_TRY(const json said, parsed(*file));
  const json plans = said.value("plans", json::array());
  const std::shared_ptr<const engine::ModelSource> source = file->model();
  const std::vector<engine::Part> builds = file->builds();
  if (source == nullptr || builds.empty())
    return fail(ErrorKind::usage,
                fmt::format("engine \"{}\": it does not hold its model, so it cannot be rebuilt\n  build it again from "
                            "the ONNX file (without --no-model, which leaves the model out)",
                            file->name()));
  OCTAVO_TRY(KeptModel kept, kept_model(source, file->name()));
  std::unique_ptr<OpenModel> model;
  std::vector<Shapes> done;
  for (std::size_t k = 0; k < builds.size(); ++k) {
    const engine::Part& part = builds[k];
    if (k < plans.size() && plans[k].is_object() && plans[k].contains("tuned") && plans[k]["tuned"] == false) continue;
    OCTAVO_TRY(ReadBuild read,
               options_again({reinterpret_cast<const char*>(part.build.data()), part.build.size()}, file->name(), request));
    const Shapes shapes = std::exchange(read.options.import.shapes, {});
    if (std::find(done.begin(), done.end(), shapes) != done.end()) continue;
    done.push_back(shapes);
    read.options.import.default_batch = 0;  // what --batch bound stays open
    read.options.timing.cache = request.timing_cache;
    read.options.progress = request.progress;
    read.options.source = source;
    read.options.notes = part.notes();
    if (model == nullptr) {
      OCTAVO_TRY(model, OpenModel::create(kept.session, nullptr, read.options, open.ranges));
      model->holds_ = kept.holds;
      model->file_ = file->name();  // as one that is loaded: what is planned for its shapes is kept for others, whatever the effort
    }
    OCTAVO_CHECK(model->tune(shapes));
  }
  if (model == nullptr) return bad(*file, "it lists no plan that was tuned");
  return std::shared_ptr<const OpenModel>(std::move(model));
}

}  // namespace octavo::api
