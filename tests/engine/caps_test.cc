// An engine built with everything that this processor has loads and runs under every cap that leaves what it needs, with the same bits,
// and is refused under the others by the name of what is missing; and the other way round.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "cpu/isa.h"
#include "cpu/provider.h"
#include "engine/engine.h"
#include "ir/text.h"
#include "plan/plan.h"

namespace octavo::engine {
namespace {

/// A convolution behind which a SiLU is rounded twice (a table, a curve or floats, by what the processor has), a depthwise one, a
/// pooling, a float softmax.
constexpr const char* kModel = R"(graph "caps"
x = input : f32[1,16,24,24]
q = view x q=u8(0.03,128)
w1 = constant s8[32,16,3,3] q=s8(0.01,0) seed:1
a = conv q w1 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}
v = view a q=u8(0.05,120)
s = sigmoid v
m = mul v s
n = view m q=u8(0.04,30)
w2 = constant s8[32,1,3,3] q=s8(0.02,0) seed:2
b = conv n w2 {dilations=[1,1], group=32, pads=[1,1,1,1], strides=[2,2]}
c = view b q=u8(0.05,0)
p = max_pool c {dilations=[1,1], kernel=[2,2], pads=[0,0,0,0], strides=[2,2]}
t = softmax p {axis=1}
output t
output p
)";

const char* const kCaps[] = {"portable", "avx2", "avx512", "avx512vnni,-avx512vbmi", "avx512vnni", "amx,-avx512vbmi", "amx"};

class UnderCap {
 public:
  explicit UnderCap(const char* cap) { ::setenv("OCTAVO_CPU", cap, 1); }
  ~UnderCap() { ::unsetenv("OCTAVO_CPU"); }
};

std::vector<std::vector<float>> run(const std::shared_ptr<const Engine>& engine) {
  auto context = Context::create(engine, 2);
  EXPECT_TRUE(context) << context.error().message;
  const region::Plan& plan = engine->plan();
  std::vector<float> x(16 * 24 * 24);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7919 % 801) - 400) / 100.0F;
  std::vector<std::vector<float>> y;
  std::vector<void*> out;
  for (const region::Binding& b : plan.outputs) y.emplace_back(static_cast<std::size_t>(ir::count(b.type.shape)));
  for (auto& v : y) out.push_back(v.data());
  const void* in[] = {x.data()};
  EXPECT_TRUE((*context)->run(in, out));
  return y;
}

TEST(Caps, EnginesRunWhereverTheyCanAndAreRefusedByNameElsewhere) {
  const auto graph = ir::parse(kModel);
  ASSERT_TRUE(graph) << graph.error().message;
  const auto path = (std::filesystem::temp_directory_path() / ("octavo-caps-" + std::to_string(::getpid()))).string();
  std::vector<std::vector<float>> expected;
  std::set<std::string> loaded, refused;
  for (const char* built_under : kCaps) {
    {
      const UnderCap cap(built_under);
      plan::PlanOptions o;
      o.threads = 2;
      auto planned = plan::make_plan(*graph, cpu::providers(), o);
      ASSERT_TRUE(planned) << planned.error().message;
      const auto engine = Engine::create(std::move(planned->plan), cpu::providers());
      ASSERT_TRUE(engine) << engine.error().message;
      const auto y = run(*engine);
      if (expected.empty()) expected = y;
      EXPECT_EQ(y[1], expected[1]) << "built under " << built_under;
      ASSERT_TRUE((*engine)->save(path));
    }
    for (const char* loaded_under : kCaps) {
      const std::string where = std::string("built under ") + built_under + ", loaded under " + loaded_under;
      const UnderCap cap(loaded_under);
      const auto engine = Engine::load(path, cpu::providers());
      if (!engine) {
        EXPECT_EQ(engine.error().kind, ErrorKind::unsupported) << where << ": " << engine.error().message;
        EXPECT_TRUE(engine.error().message.find("needs a") != std::string::npos ||
                    engine.error().message.find("oneDNN does not follow OCTAVO_CPU") != std::string::npos)
            << where << ": " << engine.error().message;
        const auto at = engine.error().message.find("needs a");
        if (at != std::string::npos) refused.insert(engine.error().message.substr(at));
        continue;
      }
      for (const region::Region& r : (*engine)->plan().regions)
        EXPECT_EQ(cpu::in_words(cpu::why_lacking(r.required)), "") << where << ": " << r.name;
      EXPECT_EQ(run(*engine)[1], expected[1]) << where;
      loaded.insert(where);
    }
  }
  std::filesystem::remove(path);
  EXPECT_TRUE(loaded.contains("built under portable, loaded under amx"));
  for (const std::string& why : refused) std::printf("refused: %s\n", why.substr(0, why.find('\n')).c_str());
  if (cpu::detected_isa() >= cpu::Isa::avx2) {
    EXPECT_FALSE(refused.empty());
    EXPECT_TRUE(loaded.contains("built under avx2, loaded under amx"));
  }
}

}  // namespace
}  // namespace octavo::engine
