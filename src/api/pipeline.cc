#include "api/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/description.h"
#include "api/device_name.h"
#include "api/finish_build.h"
#include "api/load.h"
#include "api/session.h"
#include "api/used_gpu.h"
#include "base/build_work.h"
#include "cpu/cap.h"
#include "cpu/provider.h"
#include "cuda/device/absent_gpu.h"
#include "cuda/device/gpu_device.h"
#include "cuda/provider.h"
#include "engine/set.h"
#include "ir/text.h"
#include "plan/decided.h"
#include "plan/effort.h"
#include "plan/plan.h"
#include "reference/oracle_provider.h"
#include "region/bound_value.h"

namespace octavo::api {
Result<Built> finish_build(onnx::Model model, const PipelineOptions& options, const onnx::LateValues& late) {
  OCTAVO_TRY(const cpu::Isa most, cpu::cap_named(options.cpu));
  const cpu::CapScope cap(most);
  OCTAVO_CHECK(check_gpu(options.device));
  OCTAVO_CHECK(begin_step("plan"));
  plan::PlanOptions p = planner_options(options, model);
  OCTAVO_TRY(const engine::Providers usable, providers(options.device));
  Measuring measuring;
  OCTAVO_CHECK(measuring.begin(options, usable, p));
  OCTAVO_TRY(plan::Planned planned, plan::make_plan(model.graph, usable, p));
  for (region::Binding& b : planned.plan.inputs) {
    const auto value = late.given.find(b.name);
    if (value == late.given.end()) continue;
    if (b.type != value->second.type() || !b.format.empty()) {
      return fail(ErrorKind::usage,
                  fmt::format("input \"{}\" decides shapes: it is bound by its value and takes no other type or layout", b.name));
    }
    b.format = region::value_format(b.type, value->second.bytes().data());
  }
  OCTAVO_CHECK(measuring.keep(options));
  OCTAVO_CHECK(begin_step("engine"));
  for (const region::Provider* provider : usable) {
    const BuildTimer timer(&BuildWork::wait);
    region::Plan* const plan = &planned.plan;
    OCTAVO_CHECK(provider->finish({&plan, 1}, engine::available_cores()));
  }
  ir::PrintOptions text;
  text.full_constants = false;
  Built built;
  engine::Origin origin{options.keep_model ? options.source : nullptr, {}, options.notes, to_json(model.description)};
  if (origin.model != nullptr) {
    PipelineOptions said = options;
    said.plan.threads = p.threads;
    origin.build = build_text(said, late);
  }
  OCTAVO_TRY(built.engine, engine::Engine::create(std::move(planned.plan), usable, ir::print(planned.graph, text),
                                                  devices(options.device), nullptr, std::move(origin)));
  const std::string from = engine::shapes_text(built.engine->plan());
  for (std::optional<plan::Decided> d : {std::optional(std::move(planned.decided)), std::move(planned.whole_batch)}) {
    if (!d) continue;
    d->from = from;
    built.decided.push_back(std::make_shared<const plan::Decided>(std::move(*d)));
  }
  built.graph = std::move(planned.graph);
  built.reports = std::move(planned.reports);
  built.permitted = std::move(planned.permitted);
  built.model = std::move(model);
  return built;
}

plan::PlanOptions planner_options(const PipelineOptions& options, const onnx::Model& model) {
  plan::PlanOptions p = options.plan;
  if (p.threads == 0) p.threads = engine::available_cores();
  if (UsedGpu::of(options.device)) {
    p.usual = cuda::usual_choices(), p.priced = cuda::priced_choices();
    p.model_types = model.float_types;
  }
  for (const auto& [alias, name] : model.aliases) {
    const auto given = p.ranges.find(alias);
    if (given == p.ranges.end() || alias == name) continue;
    const auto [at, fresh] = p.ranges.emplace(name, given->second);
    at->second = ir::wider(ir::Quantizer(at->second), given->second);
    p.ranges.erase(alias);
  }
  return p;
}

Result<engine::Providers> providers(std::string_view device) {
  if (device == "cpu") return cpu::providers();
  if (device == "reference") return engine::Providers{&reference::oracle_provider()};
  OCTAVO_TRY(const auto gpu, UsedGpu::named(device));
  if (gpu) {
    OCTAVO_CHECK(cuda::check_has_kernels());
    engine::Providers out{&gpu->planner()};
    if (takes_cpu_too(device)) std::ranges::copy(cpu::providers(), std::back_inserter(out));
    return out;
  }
  return fail(
      ErrorKind::usage,
      fmt::format(
          "device \"{}\" is not known; known are \"cpu\", \"reference\", \"cuda\", \"cuda:N\" for GPU "
          "number N, \"cuda:NAME\" for a GPU that is not here, and \"cuda,cpu\" for a GPU whose missing kernels run on the CPU",
          device));
}

engine::Providers all_providers(std::string_view device) {
  engine::Providers all = cpu::providers();
  all.push_back(&reference::oracle_provider());
  all.push_back(&UsedGpu::or_first(device).loader());
  return all;
}

std::vector<region::ParameterRow> parameters_of(const region::Tactic& tactic) {
  for (const region::Provider* p : all_providers()) {
    if (p->knows(tactic)) {
      if (auto rows = p->parameters_of(tactic); !rows.empty()) return rows;
    }
  }
  return {};
}

engine::Devices devices(std::string_view device) {
  return {&UsedGpu::or_first(device).device()};
}

Status check_gpu(std::string_view device) {
  const auto gpu = UsedGpu::of(device);
  return gpu ? gpu->check() : Status();
}

Status remake_code(region::Plan& plan, std::string_view device) {
  const auto on_gpu = [](const region::Region& r) { return cuda::provider().knows(r.tactic); };
  if (std::none_of(plan.regions.begin(), plan.regions.end(), on_gpu)) return {};
  return UsedGpu::or_first(device).remake(plan);
}

Status Measuring::begin(const PipelineOptions& build, const engine::Providers& providers, plan::PlanOptions& options) {
  const auto gpu = UsedGpu::of(build.device);
  if (!plan::effort_at(options.effort).measures || (build.device != "cpu" && !gpu) || options.costs != nullptr ||
      plan::followed(options) != nullptr)
    return {};
  tune::TuneOptions tuning;
  if (gpu) {
    tuning.devices = devices(build.device);
    OCTAVO_TRY(tuning.device, tuning.devices.front()->description());
    tuning.compile_seconds = cuda::kCompileSeconds;
  }
  tune::TimingCache cache;
  file_ = build.timing.cache.empty() ? tune::user_cache() : build.timing.cache == kNoCache ? std::string() : build.timing.cache;
  if (!file_.empty()) {
    OCTAVO_TRY(cache, tune::TimingCache::read(file_));
  }
  tuning.effort = options.effort, tuning.threads = options.threads;
  tuning.strict = build.timing.strict, tuning.log = build.timing.log;
  costs_.emplace(std::move(cache), providers, std::move(tuning));
  options.costs = &*costs_;
  return {};
}

Status Measuring::keep(const PipelineOptions&) const {
  if (!costs_ || costs_->measured() == 0 || file_.empty()) return {};
  return costs_->fresh().add_to(file_);
}

std::string device_of(const region::Plan& plan) {
  if (plan.devices.size() > 1) return plan.devices[1].name;  // of a plan with regions on both: the GPU
  return plan.regions.empty() ? "cpu" : plan.regions.front().tactic.provider;
}

std::vector<DeviceHere> devices_here() {
  std::vector<DeviceHere> out{{"cpu", tune::here(1).device}};
  for (int i = 0;; ++i) {
    auto described = cuda::gpu(i).description();
    if (!described) return out;
    out.push_back({fmt::format("cuda:{}", i), std::move(*described)});
  }
}

std::string runs_on(const engine::Engine& engine) {
  if (engine.plan().devices.size() < 2) return tune::here(1).device;
  auto described = engine.device(1).description();
  return described ? *described : described.error().message;
}

Result<bool> permits_pairs(std::string_view qdq) {
  if (qdq == "demand" || qdq == "permit") return qdq == "permit";
  return fail(ErrorKind::usage, fmt::format("qdq \"{}\": known are demand and permit", qdq));
}

Status check_options(const PipelineOptions& options) {
  if (auto known = providers(options.device); !known) return tl::unexpected<Error>(known.error());
  OCTAVO_CHECK(cpu::cap_named(options.cpu));
  // Why the device has no kernels for it; the reference evaluator has no types that are faster than others.
  const auto float16_here = [&](const std::string& what) -> Status {
    if (options.device != "cpu") return {};
    return fail(ErrorKind::usage,
                fmt::format("{} \"float16\": no kernel of device \"cpu\" computes in float16\n  build for device cuda, or "
                            "take bfloat16, which processors with AVX512-BF16 or AMX have; the rule "
                            "NAME=float16-emulated computes the values of float16 in float32",
                            what));
  };
  for (const plan::PrecisionRule& rule : options.plan.precisions) {
    if (rule.type == plan::LayerType::float16)
      OCTAVO_CHECK(float16_here(fmt::format("precision rule \"{}=float16\": type", rule.pattern)));
  }
  if (options.plan.allowed.contains(plan::LayerType::float16)) OCTAVO_CHECK(float16_here("allowed type"));
  if (options.plan.allowed.contains(plan::LayerType::tf32)) {
    if (!options.device.starts_with("cuda"))
      return fail(
          ErrorKind::usage,
          fmt::format("allowed type \"tf32\": only GPUs multiply in tf32, and the device is \"{}\"\n  build for device cuda, or "
                      "leave tf32 out",
                      options.device));
    if (!options.plan.allowed.contains(plan::LayerType::float32))
      return fail(ErrorKind::usage,
                  "allowed type \"tf32\": values stay float32 in memory, which is not allowed\n  allow float32 as well");
  }
  if (options.plan.allowed.empty())
    return fail(ErrorKind::usage,
                "allowed types: none is given\n  known are int8, float32 and bfloat16, and on a GPU float16 and tf32");
  if (options.plan.max_error && !(*options.plan.max_error >= 0)) {  // NaN too
    return fail(ErrorKind::usage, fmt::format("max error {}: it is a part of an output's largest magnitude, 0 or more, as 0.02",
                                              *options.plan.max_error));
  }
  if (!plan::is_effort(options.plan.effort)) {
    return fail(ErrorKind::usage,
                fmt::format("build: effort {} asked for; 0 to {} are known", options.plan.effort, plan::kMostEffort));
  }
  const auto gpu = UsedGpu::of(options.device);
  if (gpu && gpu->absent() && plan::effort_at(options.plan.effort).measures) {
    return fail(ErrorKind::usage,
                fmt::format("effort {} measures kernels, but {} need not be in this machine\n  build at effort 0, by estimates, or "
                            "for device cuda on a machine that has such a GPU",
                            options.plan.effort, cuda::with_architecture(*gpu->absent())));
  }
  if (options.plan.threads >= 0) return {};
  return fail(ErrorKind::usage,
              fmt::format("build: {} threads asked for; give at least 1, or 0 for every core", options.plan.threads));
}

Result<Built> build_file(const std::string& path, const PipelineOptions& options) {
  OCTAVO_CHECK(check_options(options));
  OCTAVO_TRY(const auto session, Session::open(path, options.import.display_name));
  onnx::LateValues none;
  return session->build(options, none);
}

Result<Built> build_bytes(std::span<const std::byte> bytes, const PipelineOptions& options, const std::string& folder) {
  OCTAVO_CHECK(check_options(options));
  const std::string& name = options.import.display_name;
  OCTAVO_TRY(const auto session, Session::of(bytes, folder, name.empty() ? "the model" : name));
  onnx::LateValues none;
  return session->build(options, none);
}

Result<Built> build_graph(ir::Graph graph, const PipelineOptions& options) {
  OCTAVO_CHECK(check_options(options));
  const TaskScope task(options.progress);
  onnx::Model model;
  model.graph = std::move(graph);
  return finish_build(std::move(model), options, {});
}

Result<std::vector<ir::Tensor>> run(engine::Context& context, const std::vector<ir::Tensor>& inputs,
                                    const engine::Observer* observer, engine::MemoryReport* memory) {
  const region::Plan& plan = context.engine().plan();
  if (inputs.size() != plan.inputs.size()) {
    return fail(ErrorKind::bad_input,
                fmt::format("run \"{}\": {} inputs given, the model has {}", plan.model_name, inputs.size(), plan.inputs.size()));
  }
  std::vector<const void*> in;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const region::Binding& b = plan.inputs[i];
    if (inputs[i].empty() || inputs[i].type() != b.type) {
      return fail(ErrorKind::bad_input,
                  fmt::format("run \"{}\": input \"{}\" is {}, the engine was built for {}", plan.model_name, b.name,
                              inputs[i].empty() ? "missing" : ir::to_string(inputs[i].type()), ir::to_string(b.type)));
    }
    in.push_back(inputs[i].bytes().data());
  }
  std::vector<ir::Tensor> outputs;
  std::vector<void*> out;
  for (const region::Binding& b : plan.outputs) {
    outputs.emplace_back(b.type);
    out.push_back(outputs.back().mutable_bytes().data());
  }
  if (memory == nullptr) {
    OCTAVO_CHECK(context.run(in, out, observer));
  } else {
    OCTAVO_TRY(*memory, engine::check_memory(context, in, out));
  }
  return outputs;
}

}  // namespace octavo::api
