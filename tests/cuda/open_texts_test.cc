// Kernels of open batches: one text for all numbers of images, which take theirs when they are started. Each family's text is the same at every batch, runs at
// each under the emulation with the results of the reference, and mistakes planted in what it does with the number are found.
#include <gtest/gtest.h>

#include "cuda/attention_halves_scene.h"
#include "cuda/conv_scene.h"
#include "cuda/conv_tiles.h"
#include "cuda/device/cubin.h"
#include "cuda/device/nvrtc.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/conv/conv_mma.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "cuda/matmul_scene.h"
#include "cuda/rows_scene.h"
#include "cuda/text/emit_cuda.h"
#include "cuda/text/open.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

const cuda::Target kTarget{"sm_80", 108, 163 * 1024};
constexpr std::int64_t kImages = 5;  // that scenes are made for

template <class F>
void each_tensor(region::Region& r, const F& f) {
  for (region::Stage& s : r.stages) {
    for (region::TensorRef& t : s.anchor.inputs) f(s, t);
    for (region::Operand& o : s.operands) f(s, o.ref);
    for (region::TensorRef& t : s.stores) f(s, t);
  }
}

/// The region, which is of kImages, for any number of images; and for `images` of them.
region::Region open_batch(region::Region r, std::int64_t images) {
  each_tensor(r, [](const region::Stage& s, region::TensorRef& t) {
    if (t.dims.size() == s.space.size() && t.dims[0] == kImages && t.strides[0] != 0) t.open.dims |= 1;
  });
  each_tensor(r, [&](const region::Stage&, region::TensorRef& t) {
    if ((t.open.dims & 1) != 0 || (t.dims.size() > 1 && t.dims[0] == kImages && t.strides[0] == 0)) t.dims[0] = images;
  });
  for (region::Stage& s : r.stages) s.open = 1, s.space[0] = images;
  return r;
}

struct Emitted {
  std::string text;
  std::size_t numbers = 0;
};
Emitted emitted(const region::Region& r, const region::Plan& plan, const cuda::Family& family, const cuda::Parameters& parameters,
                const cuda::Target& target) {
  const auto made = family.emit(r, plan, parameters, target);
  EXPECT_TRUE(made) << made.error().message;
  if (!made) return {};
  Emitted out{made->text};
  for (const cuda::Launch& l : made->launches) {
    for (const cuda::Argument& a : l.arguments) out.numbers += a.kind == cuda::Argument::Kind::number ? 1 : 0;
  }
  return out;
}

/// "" or what is wrong: a text of its own for some batch, no number in it, another result than the reference's; with `edit` the same mistake at all.
struct Checked {
  const region::Region& region;
  const region::Plan& plan;
  const std::vector<std::vector<std::byte>>& memory;
  std::size_t guard = 0;
};
std::string check(const Checked& c, const cuda::Family& family, const cuda::Parameters& parameters, float tolerance = 0,
                  const Truth& truth = reference_region, const Edit& edit = {}, bool in_text = true,
                  const cuda::Target& target = kTarget) {
  std::string first;
  for (const std::int64_t images : {kImages, std::int64_t{1}, std::int64_t{2}}) {
    const region::Region r = open_batch(c.region, images);
    const Emitted one = emitted(r, c.plan, family, parameters, target);
    if (one.numbers == 0 && in_text) return "no number: " + one.text;
    if (first.empty()) first = one.text;
    if (one.text != first) return fmt::format("another text for {} images:\n{}\n---- and:\n{}", images, first, one.text);
    const std::string wrong = run_emulated({r, c.plan, c.memory, c.guard, 7}, family, parameters, tolerance, edit, truth, target);
    if (!wrong.empty()) return fmt::format("{} images: {}", images, wrong);
  }
  return "";
}

std::string check(Scene& s, const cuda::Family& family, const cuda::Parameters& parameters = {}, float tolerance = 0,
                  const Truth& truth = scalar_region, const Edit& edit = {}, bool in_text = true) {
  const region::Region r = s.region();
  return check({r, s.plan(), s.memory, 64}, family, parameters, tolerance, truth, edit, in_text);
}

ConvCase conv(std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t o, std::int64_t k, std::int64_t stride, std::int64_t pad,
              std::string style = "relu", std::int64_t groups = 1) {
  ConvCase one;
  one.n = kImages, one.c = c, one.h = h, one.w = w, one.o = o, one.kh = one.kw = k, one.stride = stride, one.pad = pad;
  one.groups = groups, one.style = std::move(style), one.zero = 7;
  return one;
}
std::string check(const ConvCase& k, const cuda::Family& family, const cuda::Parameters& parameters, const Edit& edit = {}) {
  const ConvScene s(k, 7);
  return check({s.region, s.plan, s.memory, 0}, family, parameters, 0, reference_region, edit);
}

class OpenTexts : public EmulatedTest {};

TEST_F(OpenTexts, ConvolutionsAsProducts) {
  EXPECT_EQ(check(conv(32, 5, 6, 48, 3, 1, 1), cuda::conv_mma_family(), small_tile(3, 1, false)), "");
  EXPECT_EQ(check(conv(64, 5, 3, 40, 1, 1, 0, "residual"), cuda::conv_mma_family(), small_tile(4, 1, true)), "");
  EXPECT_EQ(check(conv(64, 4, 4, 32, 3, 1, 1, "float"), cuda::conv_mma_family(), small_tile(3, 3, false)), "") << "depth is split";
  EXPECT_EQ(check(conv(64, 1, 1, 40, 1, 1, 0, "bias"), cuda::conv_mma_family(), small_tile(3, 1, false)), "") << "one pixel";
  EXPECT_EQ(check(conv(2, 5, 6, 12, 3, 1, 1), cuda::conv_mma_family(), small_tile(3, 1, false)), "") << "packed rows";
  EXPECT_EQ(check(conv(48, 5, 4, 48, 3, 1, 1, "bias", 2), cuda::conv_mma_family(), small_tile(3, 1, false)), "") << "padded groups";
  ConvCase gaps = conv(64, 4, 3, 40, 1, 1, 0, "rest");
  gaps.gap = 16;
  EXPECT_EQ(check(gaps, cuda::conv_mma_family(), small_tile(3, 1, false)), "");
}

TEST_F(OpenTexts, ConvolutionsWhoseRowsAreGathered) {
  const cuda::Target hopper{"sm_90a", 1, 227 * 1024};
  const auto gathered = [&](const ConvCase& k, const char* tiles, const Edit& edit = {}) {
    const ConvScene s(k, 7);
    const cuda::Parameters p{{"tile", "64x64x32"}, {"groups", "2"},        {"tiles", tiles},
                             {"stages", "3"},      {"filter", "streamed"}, {"blocks", "1"}};
    return check({s.region, s.plan, s.memory, 0}, cuda::conv_im2col_family(), p, 0, reference_region, edit, true, hopper);
  };
  const ConvCase k = conv(32, 9, 7, 72, 3, 1, 1, "bias");
  EXPECT_EQ(gathered(k, "turns"), "");
  EXPECT_NE(gathered(k, "turns",
                     [](std::string text) {
                       return edited(std::move(text), "pixel[i] = p < kPixels ?", "pixel[i] = p < kPixels - 1 ?");
                     }),
            "");
}

TEST_F(OpenTexts, FirstLayersWindowsAndDepthwise) {
  for (const auto& [k, family] : {std::pair{conv(3, 8, 12, 24, 3, 2, 1), &cuda::conv_rows_family()},
                                  {conv(16, 7, 6, 20, 3, 1, 1, "residual"), &cuda::conv_window_family()},
                                  {conv(32, 7, 6, 32, 3, 2, 1, "relu", 32), &cuda::depthwise_family()},
                                  {conv(6, 4, 5, 9, 3, 1, 1, "bias", 3), &cuda::direct_conv_family()}})
    EXPECT_EQ(check(k, *family, best(k, *family, kTarget)), "") << family->name();
}

TEST_F(OpenTexts, MistakesAreFound) {
  const auto edit = [](std::string from, std::string to) {
    return [=](std::string text) { return edited(std::move(text), from, to); };
  };
  const ConvCase products = conv(32, 5, 6, 48, 3, 1, 1), deep = conv(32, 7, 6, 32, 3, 2, 1, "relu", 32);
  const cuda::Parameters tile = small_tile(3, 1, false);
  EXPECT_NE(check(products, cuda::conv_mma_family(), tile,
                  edit("pixel[i] = p < kPixels ? p : -1", "pixel[i] = p < kPixels - 1 ? p : -1")),
            "");
  EXPECT_NE(check(products, cuda::conv_mma_family(), tile,
                  edit("if (pixel >= kPixels) continue;", "if (pixel >= kPixels - 2) continue;")),
            "");
  EXPECT_NE(check(products, cuda::conv_mma_family(), tile,
                  edit("item < kItems; item += octavo_blocks()) {\n    const int tile_n",
                       "item < kItems - 1; item += octavo_blocks()) {\n    const int tile_n")),
            "");
  const auto& depthwise = cuda::depthwise_family();
  EXPECT_NE(check(deep, depthwise, best(deep, depthwise, kTarget), edit("if (item >= kItems) {", "if (item >= kItems - 1) {")), "");
}

TEST_F(OpenTexts, Elements) {
  for (const ir::Shape& shape : {ir::Shape{kImages, 16, 3, 5}, ir::Shape{kImages, 7, 2, 2}, ir::Shape{kImages, 10, 1, 1}}) {
    for (const int gap : {0, 16}) {
      Scene s(3);
      auto& st = s.stage();
      st.space = shape;
      auto& p = st.program;
      p.operand_count = 2;
      st.operands = {{s.nhwc(DType::u8, shape, BufferKind::input, gap), {}}, {s.along(DType::f32, shape, 1), {}}};
      const int y = p.push(Op::mul, p.push(Op::i2f, p.load(Op::load_i, 0)), p.load(Op::load_f, 1));
      p.outputs = {{y, DType::f32}};
      st.stores = {s.nhwc(DType::f32, shape, BufferKind::output)};
      EXPECT_EQ(check(s, cuda::pointwise_family()), "") << ir::to_string(shape) << " " << gap;
    }
  }
  Scene pool(5);
  auto& st = pool.stage();
  st.space = {kImages, 16, 1, 1};
  st.anchor.op = ir::Op::avg_pool, st.anchor.integer = true;
  st.anchor.facts = ir::Window{.kernel = {7, 7}, .strides = {1, 1}, .dilations = {1, 1}, .pads = {0, 0, 0, 0}};
  st.anchor.inputs = {pool.nhwc(DType::u8, {kImages, 16, 7, 7}, BufferKind::input)};
  st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, 9);
  st.program.outputs = {{st.program.push(Op::i2f, st.program.push(Op::acc_i)), DType::f32}};
  st.stores = {pool.nhwc(DType::f32, st.space, BufferKind::output)};
  EXPECT_EQ(check(pool, cuda::pool_family()), "");
  EXPECT_NE(check(pool, cuda::pool_family(), {}, 0, scalar_region,
                  [](std::string text) { return edited(std::move(text), "rest < open0", "rest < open0 - 1u"); }),
            "");
}

TEST_F(OpenTexts, PlanesReductionsAndTransposedConvolutions) {
  Scene planes(15);
  const ir::Shape shape{kImages, 3, 6, 8};
  auto& codes = planes.stage();
  codes.space = shape;
  codes.operands = {{planes.tensor(DType::f32, shape, BufferKind::input), {}}};
  codes.stores = {planes.nhwc(DType::u8, shape)};
  auto& p = codes.program;
  p.operand_count = 1;
  const int x = p.push(Op::div, p.load(Op::load_f, 0), p.imm_f(0.043F));
  p.outputs = {{p.push(Op::f2i, p.push(Op::min, p.push(Op::max, x, p.imm_f(0)), p.imm_f(255))), DType::u8}};
  EXPECT_EQ(check(planes, cuda::planar_family(), {}, 0, scalar_region, {}, false), "");  // the grid alone has it
  Scene sums(16);
  auto& mean = sums.stage();
  mean.space = {kImages, 16, 1, 1};
  mean.anchor.op = ir::Op::reduce_mean;
  mean.anchor.facts = ir::Reduction{.axes = {2, 3}};
  mean.anchor.inputs = {sums.nhwc(DType::f32, {kImages, 16, 5, 4}, BufferKind::input)};
  mean.program.outputs = {{mean.program.push(Op::acc_f), DType::f32}};
  mean.stores = {sums.nhwc(DType::f32, mean.space, BufferKind::output)};
  EXPECT_EQ(check(sums, cuda::reduce_family(), {}, 1e-5F, reference_region), "");
  for (const std::int64_t kernel : {2, 3}) {  // phases as one convolution, and apart
    Scene s(17);
    auto& st = s.stage();
    st.space = {kImages, 32, 8, 8};
    st.anchor.op = ir::Op::conv_transpose;
    st.anchor.integer = true;
    const std::int64_t pad = kernel == 2 ? 0 : 1;
    st.anchor.facts =
        ir::Window{.strides = {2, 2}, .dilations = {1, 1}, .pads = {pad, pad, pad, pad}, .output_padding = {pad, pad}};
    st.anchor.inputs = {s.nhwc(DType::u8, {kImages, 64, 4, 4}, BufferKind::input)};
    st.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.1F, 9);
    st.anchor.weights = s.tensor(DType::s8, {64, 32, kernel, kernel}, BufferKind::constant);
    s.requantize(1, 0.01F);
    st.stores = {s.nhwc(DType::u8, st.space, BufferKind::output)};
    const auto all = cuda::transposed_conv_family().candidates(s.region(), s.plan(), kTarget);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(check(s, cuda::transposed_conv_family(), all[0].parameters, 0, scalar_region), "") << kernel;
  }
}

TEST_F(OpenTexts, CopiesBetweenLayouts) {
  for (const std::int64_t channels : {5, 40}) {
    Scene s(7);
    auto& st = s.stage();
    st.space = {kImages, channels, 5, 9};
    st.anchor.op = ir::Op::reshape;
    st.anchor.facts = ir::Reshape{};
    st.anchor.inputs = {s.tensor(DType::f32, st.space, BufferKind::input)};
    st.stores = {s.nhwc(DType::f32, st.space, BufferKind::output)};
    EXPECT_EQ(check(s, cuda::copy_family()), "") << channels;
  }
  Scene turned(8);
  auto& st = turned.stage();
  st.space = {kImages, 40, 3, 37};
  st.anchor.op = ir::Op::reshape;
  st.anchor.facts = ir::Reshape{};
  st.anchor.inputs = {turned.tensor(DType::f32, st.space, BufferKind::input)};
  st.stores = {turned.nhwc(DType::f32, st.space, BufferKind::output)};
  EXPECT_EQ(check(turned, cuda::copy_family()), "");
}

TEST_F(OpenTexts, RowsOfNormsAndSoftmax) {
  for (const ir::Op op : {ir::Op::softmax, ir::Op::layer_norm}) {
    for (const std::string style : {"mul", "residual"}) {
      Scene s(9);
      RowCase c;
      c.op = op, c.space = {kImages, 3, 40}, c.style = style;
      build(s, c);
      const cuda::Family& by_launches = is_softmax(op) ? cuda::softmax_family() : cuda::norm_family();
      EXPECT_EQ(check(s, by_launches, {}, 1e-5F, reference_region), "") << style;
      const cuda::Family& family = family_of(op);
      EXPECT_EQ(check(s, family, {{"rows", "2"}, {"warps", "2"}}, 2e-6F, reference_region), "") << style;
    }
  }
}

/// The elements of a row are open too: one text for rows of one and of several blocks of the reference's sums.
TEST_F(OpenTexts, SoftmaxOfRowsOfAnyLength) {
  for (const ir::Op op : {ir::Op::softmax, ir::Op::log_softmax}) {
    for (const auto& [family, lengths] :
         {std::pair{&cuda::row_softmax_family(), std::vector<std::int64_t>{48, 16, 80, 144, 400, 1040}},
          {&cuda::softmax_family(), {48, 16, 64}},
          {&cuda::softmax_family(), {80, 144, 400}}}) {
      std::string first;
      for (const std::int64_t length : lengths) {
        Scene s(9);
        RowCase c;
        c.op = op, c.space = {2, 3, length};
        build(s, c);
        region::Region r = s.region();
        each_tensor(r, [](const region::Stage& st, region::TensorRef& t) {
          if (t.dims.size() == st.space.size()) t.open.dims = 4, t.open.strides = 3;
        });
        r.stages[0].open = 4;
        const bool rows = family == &cuda::row_softmax_family();
        const cuda::Parameters tile = rows ? cuda::Parameters{{"rows", "2"}, {"warps", "2"}} : cuda::Parameters{};
        const Emitted one = emitted(r, s.plan(), *family, tile, kTarget);
        EXPECT_GT(one.numbers, 0U);
        if (first.empty()) first = one.text;
        EXPECT_EQ(one.text, first) << family->name() << ", rows of " << length;
        const auto run = [&](const Edit& edit) {
          return run_emulated({r, s.plan(), s.memory, 64, 7}, *family, tile, 1e-5F, edit, reference_region, kTarget);
        };
        EXPECT_EQ(run({}), "") << family->name() << ", rows of " << length;
        if (!rows || length != 400) continue;
        EXPECT_NE(run([](std::string text) { return edited(std::move(text), "end -= power;", "end -= 1;"); }), "");
      }
    }
  }
}

TEST_F(OpenTexts, ProductsOfMatrices) {
  for (const bool heads : {false, true}) {
    ProductCase c;
    c.batch = heads ? ir::Shape{kImages, 3} : ir::Shape{kImages}, c.m = 20, c.n = 24, c.k = 40, c.style = "residual";
    if (heads) c.left = "heads", c.stored = "heads";
    Scene s(11);
    build(s, c);
    const auto all = cuda::matmul_u8_family().candidates(s.region(), s.plan(), kTarget);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(check(s, cuda::matmul_u8_family(), all[0].parameters, 0, reference_region, {}, false), "")
        << c.text();  // the grid alone has it
  }
}

/// Open lengths: strides between matrices are open too.
TEST_F(OpenTexts, AttentionOfAnyLength) {
  using halves::Mask;
  for (const Mask mask : {Mask::none, Mask::keys}) {
    std::string first;
    for (const auto& [batch, length] : {std::pair<std::int64_t, std::int64_t>{2, 40}, {1, 64}, {3, 6}, {2, 34}}) {
      halves::Forms forms;
      forms.mask = mask;
      const halves::Sizes n{batch, 2, length, length, 24, 16};
      const auto run = [&](const Edit& edit) {
        Scene s(5);
        halves::set(s, n, forms);
        region::Region r = s.region();
        for (region::Stage& st : r.stages) {
          const bool values = &st == &r.stages.back();
          st.open = values ? 5 : 13;
          for (region::TensorRef& t : st.anchor.inputs) t.open = {1, t.strides[0] != 0 ? 1U : 0U, false};
          for (region::Operand& o : st.operands) o.ref.open = {1, o.ref.strides[0] != 0 ? 1U : 0U, false};
          for (region::TensorRef& t : st.stores) t.open = {1, 1, false};
        }
        const cuda::Parameters tile{{"queries", "16"}, {"warps", "1"}, {"keys", "16"}};
        if (!edit) {
          const Emitted one = emitted(r, s.plan(), cuda::attention_f16_family(), tile, kTarget);
          EXPECT_GT(one.numbers, 0U);
          if (first.empty()) first = one.text;
          EXPECT_EQ(one.text, first) << length;
        }
        return run_emulated({r, s.plan(), s.memory, 64, 5}, cuda::attention_f16_family(), tile, forms.tolerance(n), edit,
                            reference_region, kTarget);
      };
      EXPECT_EQ(run({}), "") << batch << " x " << length;
      if (length != 34) continue;
      EXPECT_NE(run([](std::string text) { return edited(std::move(text), "end = kKeyTiles;", "end = kKeyTiles - 1;"); }), "");
      EXPECT_NE(run([](std::string text) {
                  return edited(std::move(text), ">= kKeys ? __int_as_float", ">= kKeys - 1 ? __int_as_float");
                }),
                "");
    }
  }
}

/// A batch and an extent inside of it, of a layout where neither joins the other.
TEST_F(OpenTexts, ElementsOfAnyLength) {
  std::string first;
  for (const auto& [batch, length] : {std::pair<std::int64_t, std::int64_t>{2, 12}, {1, 20}, {3, 4}}) {
    Scene s(13);
    auto& st = s.stage();
    st.space = {batch, length, 16};
    auto& p = st.program;
    p.operand_count = 2;
    st.operands = {{s.tensor(DType::f32, st.space, BufferKind::input), {}},
                   {s.tensor(DType::f32, {1, length, 16}, BufferKind::input), {}}};
    st.operands[1].ref.dims = st.space, st.operands[1].ref.strides = {0, 16, 1};
    p.outputs = {{p.push(Op::add, p.load(Op::load_f, 0), p.load(Op::load_f, 1)), DType::f32}};
    st.stores = {s.tensor(DType::f32, st.space, BufferKind::output, {1, 0, 2})};
    region::Region r = s.region();
    region::Stage& open = r.stages[0];
    open.open = 3;
    open.operands[0].ref.open = {3, 1, false}, open.operands[1].ref.open = {2, 0, false};
    open.stores[0].open = {3, 2, false};  // lengths outermost
    const Emitted one = emitted(r, s.plan(), cuda::pointwise_family(), {}, kTarget);
    EXPECT_GT(one.numbers, 1U);
    if (first.empty()) first = one.text;
    EXPECT_EQ(one.text, first) << batch << " x " << length;
    EXPECT_EQ(run_emulated({r, s.plan(), s.memory, 64, 13}, cuda::pointwise_family(), {}, 0, {}, scalar_region, kTarget), "");
  }
}

/// Families whose instructions the emulation lacks, and others on the GPU that has them: one text, as machine code.
TEST(OpenTextsOfHopper, AreOneTextAndCompile) {
  const cuda::Target hopper{"sm_90a", 132, 227 * 1024};
  for (const auto& [k, family] : {std::pair{conv(64, 14, 14, 64, 3, 1, 1, "residual"), &cuda::conv_stream_family()},
                                  {conv(32, 14, 14, 64, 3, 2, 1), &cuda::conv_stream_family()},
                                  {conv(32, 14, 14, 64, 3, 1, 1), &cuda::conv_shift_family()},
                                  {conv(64, 14, 14, 64, 3, 2, 1), &cuda::conv_im2col_family()},
                                  {conv(128, 14, 14, 64, 1, 1, 0), &cuda::conv_linear_family()},
                                  {conv(128, 14, 14, 64, 1, 1, 0), &cuda::conv_mma_family()}}) {
    const ConvScene s(k, 7);
    const cuda::Parameters parameters = best(k, *family, hopper);
    std::string first;
    for (const std::int64_t images : {kImages, std::int64_t{1}, std::int64_t{32}}) {
      const Emitted one = emitted(open_batch(s.region, images), s.plan, *family, parameters, hopper);
      EXPECT_GT(one.numbers, 0U) << family->name();
      if (first.empty()) first = one.text;
      EXPECT_EQ(one.text, first) << family->name() << ", " << images << " images";
    }
    if (!cuda::compiler_version()) continue;
    const auto code = cuda::compile(cuda::emit_prelude() + first, cuda::compile_options(hopper.architecture));
    ASSERT_TRUE(code) << family->name() << ": " << code.error().message;
    const auto made = family->emit(open_batch(s.region, 3), s.plan, parameters, hopper);
    ASSERT_TRUE(made);
    std::vector<const cuda::Launch*> launches;
    for (const cuda::Launch& l : made->launches) launches.push_back(&l);
    const Status fits = cuda::check_machine_code(std::as_bytes(std::span(code->cubin)), hopper.architecture, launches);
    EXPECT_TRUE(fits) << fits.error().message;
  }
}

/// Without weights, and with their largest sum alone, a text is the same, and what stands for packed constants says how they are packed.
TEST(OpenTextsWithoutWeights, AreTheSame) {
  const ConvCase k = conv(32, 5, 6, 48, 3, 1, 1);
  ConvScene s(k, 7);
  const auto& family = cuda::conv_mma_family();
  const auto whole = family.emit(open_batch(s.region, 3), s.plan, small_tile(3, 1, false), kTarget);
  ASSERT_TRUE(whole) << whole.error().message;
  std::int64_t most = 0;
  const region::TensorRef& w = *s.region.stages[0].anchor.weights;
  const auto* codes = s.plan.buffers[static_cast<std::size_t>(w.buffer)].data.data<std::int8_t>().data();
  for (std::int64_t o = 0; o < k.o; ++o) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < w.strides[0]; ++i) sum += std::abs(codes[o * w.strides[0] + i]);
    most = std::max(most, sum);
  }
  region::Region bare = open_batch(s.region, 4);
  bare.stages[0].anchor.weight_sum = most;
  s.plan.buffers[static_cast<std::size_t>(w.buffer)].data = {};
  const auto without = family.emit(bare, s.plan, small_tile(3, 1, false), kTarget);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->text, whole->text);
  const auto other = family.emit(bare, s.plan, small_tile(3, 1, true), kTarget);
  cuda::ConvTile wide;
  wide.m = 32, wide.n = 64, wide.k = 32, wide.warps_m = 2, wide.warps_n = 1, wide.stages = 3, wide.splits = 1, wide.blocks = 1;
  const auto otherwise = family.emit(bare, s.plan, cuda::spell(wide), kTarget);
  ASSERT_TRUE(other && otherwise);
  const auto bytes = [](const cuda::KernelText& t) {
    const auto b = t.constants[0].bytes();
    return std::vector<std::byte>(b.begin(), b.end());
  };
  EXPECT_EQ(bytes(*other), bytes(*without)) << "a resident filter is packed alike";
  EXPECT_NE(bytes(*otherwise), bytes(*without)) << "wider tiles pack otherwise";
}

TEST(OpenTextsParts, TwoForms) {
  const std::string_view text = "a@closed{b = 1;\n}@@open{, @HERE@}@ c @MARK@";
  EXPECT_EQ(cuda::text_for(text, false), "ab = 1;\n c @MARK@");
  EXPECT_EQ(cuda::text_for(text, true), "a, @HERE@ c @MARK@");
  cuda::OpenNumbers n;
  EXPECT_EQ(n.put({7, false}, "ll"), "7ll");
  EXPECT_TRUE(n.empty());
  EXPECT_EQ(n.put({7, true}, "u"), "open0");
  n.name("kItems", 9);
  EXPECT_EQ(n.parameters(), ", unsigned open0, int kItems");
  EXPECT_EQ(n.passed(), ", open0, kItems");
}

}  // namespace
}  // namespace octavo::testing
