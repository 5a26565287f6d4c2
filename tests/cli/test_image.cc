// Pictures: decoding, resizing and the arithmetic of the presets.
#include <gtest/gtest.h>
#include <jpeglib.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "cli/file.h"
#include "cli/inputs/image.h"

namespace octavo::cli {
namespace {

std::vector<std::byte> jpeg(const Image& image) {
  jpeg_compress_struct info;
  jpeg_error_mgr error;
  info.err = jpeg_std_error(&error);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &out, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row =
        const_cast<JSAMPLE*>(image.pixels.data()) + info.next_scanline * info.image_width * static_cast<unsigned>(image.channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* bytes = reinterpret_cast<std::byte*>(out);
  std::vector<std::byte> file(bytes, bytes + size);
  std::free(out);
  return file;
}

Image ramp(int height, int width, int channels) {
  Image image{width, height, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) image.pixels.push_back(static_cast<std::uint8_t>(3 * x + 2 * y + 20 * c));
    }
  }
  return image;
}

TEST(DecodeImage, Jpeg) {
  for (const int channels : {1, 3}) {
    const Image in = ramp(17, 33, channels);
    const auto out = decode_image(jpeg(in), "x.jpg");
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_EQ(out->width, 33);
    EXPECT_EQ(out->height, 17);
    ASSERT_EQ(out->channels, channels);
    double worst = 0;
    for (std::size_t i = 0; i < in.pixels.size(); ++i) worst = std::max(worst, std::abs(double{1} * in.pixels[i] - out->pixels[i]));
    EXPECT_LT(worst, 12) << "JPEG is lossy, but not that lossy";
  }
}

TEST(DecodeImage, PngOfTheExample) {
  const auto bytes = read_file(OCTAVO_SOURCE_DIR "/examples/digits/images/0_008.png");
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_TRUE(is_image(*bytes));
  const auto image = decode_image(*bytes, "0_008.png");
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_EQ(image->width, 16);
  EXPECT_EQ(image->height, 16);
  EXPECT_EQ(image->channels, 1);
  EXPECT_EQ(image->pixels[0], 0);
}

TEST(DecodeImage, MorePixelsThanTheFileCanHoldAreRefused) {
  auto bytes = jpeg(ramp(16, 16, 3));
  std::size_t frame = 0;
  while (frame + 9 < bytes.size() && !(bytes[frame] == std::byte{0xff} && bytes[frame + 1] == std::byte{0xc0})) ++frame;
  ASSERT_LT(frame + 9, bytes.size());
  for (const std::size_t at : {frame + 5, frame + 7}) bytes[at] = std::byte{0x3a};  // some 14900 x 14900: seconds of grey
  const auto image = decode_image(bytes, "bomb");
  ASSERT_FALSE(image);
  EXPECT_NE(image.error().message.find("claims more pixels than the file can hold"), std::string::npos) << image.error().message;
}

TEST(DecodeImage, DamagedFilesAreRefusedOrDecoded) {
  const auto png = *read_file(OCTAVO_SOURCE_DIR "/examples/digits/images/0_008.png");
  for (const auto& good : {jpeg(ramp(24, 24, 3)), png}) {
    const unsigned seed = 5;
    std::mt19937 rng(seed);
    int refused = 0;
    for (int k = 0; k < 1000; ++k) {
      auto bad = good;
      if (k % 2 == 0) bad.resize(rng() % bad.size());
      for (int i = 0; i < 3 && !bad.empty(); ++i) bad[rng() % bad.size()] = static_cast<std::byte>(rng());
      const auto image = decode_image(bad, "bad");
      refused += image ? 0 : 1;
      if (!image) continue;
      EXPECT_EQ(image->pixels.size(), static_cast<std::size_t>(image->width) * static_cast<std::size_t>(image->height) *
                                          static_cast<std::size_t>(image->channels))
          << "seed " << seed << ", file " << k;
    }
    EXPECT_GT(refused, 100);
  }
  const std::string_view text = "not a picture";
  EXPECT_EQ(decode_image(std::as_bytes(std::span(text)), "\"x.jpg\"").error().message,
            "decoding \"x.jpg\": neither a JPEG nor a PNG file");
}

TEST(Resize, KeepsConstantsAndSizes) {
  Image flat{40, 30, 3, std::vector<std::uint8_t>(40 * 30 * 3, 200)};
  for (const auto& [h, w] : {std::pair{30, 40}, {15, 20}, {7, 11}, {60, 80}, {1, 1}, {31, 39}}) {
    const Image out = resize(flat, h, w);
    ASSERT_EQ(out.pixels.size(), static_cast<std::size_t>(h * w * 3));
    for (const auto v : out.pixels) ASSERT_EQ(v, 200);
  }
}

TEST(Resize, HalvingAveragesFourByFourTriangles) {
  Image line{8, 1, 1, {0, 0, 0, 0, 80, 80, 80, 80}};  // weights of a triangle of radius 2 at odd half positions: 1 3 3 1
  const std::vector<std::uint8_t> expected{0, 10, 70, 80};
  EXPECT_EQ(resize(line, 1, 4).pixels, expected);
}

float at(const ir::Tensor& t, std::int64_t c, std::int64_t y, std::int64_t x) {
  return t.data<float>()[static_cast<std::size_t>((c * t.shape()[2] + y) * t.shape()[3] + x)];
}

TEST(ToTensor, PresetsDoTheirArithmetic) {
  Image image{4, 4, 3, {}};
  for (int i = 0; i < 16; ++i) image.pixels.insert(image.pixels.end(), {10, 20, 30});
  const ir::TensorType type{ir::DType::f32, {1, 3, 4, 4}};
  const auto run = [&](std::string_view name) { return *to_tensor(image, *preset(name, {4, 4}), type); };
  EXPECT_FLOAT_EQ(at(run("torch"), 0, 1, 2), (10.0F / 255 - 0.485F) / 0.229F);
  EXPECT_FLOAT_EQ(at(run("cifar"), 2, 3, 3), (30.0F / 255 - 0.406F) / 0.225F);
  EXPECT_FLOAT_EQ(at(run("tf"), 1, 0, 0), 20.0F / 127.5F - 1.0F);
  EXPECT_FLOAT_EQ(at(run("caffe"), 0, 0, 0), 30.0F - 104.0F) << "blue first";
  EXPECT_FLOAT_EQ(at(run("yolox"), 2, 0, 0), 10.0F);
  const auto torch = preset("torch", {224, 224}), imagenet = preset("imagenet", {224, 224});
  ASSERT_TRUE(torch && imagenet);
  EXPECT_EQ(std::tie(torch->scale, torch->mean, torch->std, torch->resize, torch->crop),
            std::tie(imagenet->scale, imagenet->mean, imagenet->std, imagenet->resize, imagenet->crop));
  EXPECT_EQ(preset("keras", {4, 4}).error().message, "--preset keras: not one of torch, tf, caffe, cifar, yolox");
}

TEST(ToTensor, LetterboxFillsRightAndBottom) {
  Image image{8, 4, 1, std::vector<std::uint8_t>(32, 250)};
  Preprocess p;
  p.letterbox = 114;
  const auto t = *to_tensor(image, p, {ir::DType::f32, {1, 1, 4, 4}});
  for (int x = 0; x < 4; ++x) {
    EXPECT_EQ(at(t, 0, 0, x), 250);
    EXPECT_EQ(at(t, 0, 1, x), 250);
    EXPECT_EQ(at(t, 0, 2, x), 114);
    EXPECT_EQ(at(t, 0, 3, x), 114);
  }
}

TEST(ToTensor, LayoutsAndTypes) {
  const Image image = ramp(2, 3, 3);
  const auto nchw = *to_tensor(image, {}, {ir::DType::u8, {1, 3, 2, 3}});
  const auto nhwc = *to_tensor(image, {}, {ir::DType::u8, {1, 2, 3, 3}});
  EXPECT_EQ(nhwc.data<std::uint8_t>()[1 * 9 + 2 * 3 + 1], image.pixels[1 * 9 + 2 * 3 + 1]);
  EXPECT_EQ(nchw.data<std::uint8_t>()[1 * 6 + 1 * 3 + 2], image.pixels[1 * 9 + 2 * 3 + 1]);
}

TEST(ToTensor, RefusesWithBothSizes) {
  const Image image = ramp(10, 10, 3);
  Preprocess p;
  p.resize = {6, 6};
  EXPECT_EQ(to_tensor(image, p, {ir::DType::f32, {1, 3, 4, 4}}).error().message,
            "the picture is 6x6 after --resize and --crop; the input is 4x4 (height x width)");
  EXPECT_EQ(to_tensor(image, {}, {ir::DType::f32, {2, 3, 4, 4}}).error().message,
            "a picture fills one of the 2 places of the input's batch\n  build with batch 1, or pass an array");
  EXPECT_EQ(to_tensor(image, {}, {ir::DType::f32, {1, 10}}).error().kind, ErrorKind::bad_input);
  EXPECT_EQ(to_tensor(image, {}, {ir::DType::s64, {1, 3, 4, 4}}).error().message,
            "an input of type s64 cannot take a picture; f32, f16 and u8 can");
}

}  // namespace
}  // namespace octavo::cli
