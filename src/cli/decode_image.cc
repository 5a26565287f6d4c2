#include <fmt/format.h>
#include <jpeglib.h>
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "cli/image.h"

namespace octavo::cli {
namespace {

constexpr std::uint64_t kMaxPixels = 1ULL << 28;

/// More pixels than so many bytes can code: a header that lies costs seconds and gigabytes. A byte of JPEG codes at most 8 blocks
/// of 64 pixels (one bit each), a byte of PNG at most 1032 bytes of 8 pixels.
constexpr std::uint64_t kJpegPixelsPerByte = 1024, kPngPixelsPerByte = 8256;
bool too_many(std::uint64_t pixels, std::size_t bytes, std::uint64_t per_byte) {
  constexpr std::uint64_t kHarmless = 1ULL << 20;
  return pixels > kHarmless && pixels / per_byte > bytes;
}

tl::unexpected<Error> bad(std::string_view what, std::string_view why) {
  return fail(ErrorKind::bad_input, fmt::format("decoding {}: {}", what, why));
}

bool is_jpeg(std::span<const std::byte> b) {
  return b.size() > 3 && b[0] == std::byte{0xff} && b[1] == std::byte{0xd8} && b[2] == std::byte{0xff};
}
bool is_png(std::span<const std::byte> b) {
  return b.size() > 8 && std::memcmp(b.data(), "\x89PNG\r\n\x1a\n", 8) == 0;
}

/// libjpeg reports fatal errors by a callback that must not return.
struct JpegError {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};

void on_error(j_common_ptr info) {
  auto* error = reinterpret_cast<JpegError*>(info->err);
  info->err->format_message(info, error->text);
  std::longjmp(error->jump, 1);
}

/// Everything between setjmp and longjmp is plain data: no destructor is skipped. Returns false with error.text set.
bool read_jpeg(std::span<const std::byte> bytes, JpegError& error, Image& image) {
  jpeg_decompress_struct info;
  info.err = jpeg_std_error(&error.base);
  error.base.error_exit = on_error;
  error.base.output_message = [](j_common_ptr) {};  // warnings (a truncated last line, say) are not fatal
  if (setjmp(error.jump) != 0) {
    jpeg_destroy_decompress(&info);
    return false;
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  if (info.num_components == 4) {
    std::strcpy(error.text, "a CMYK picture; convert it to RGB first");
    jpeg_destroy_decompress(&info);
    return false;
  }
  if (static_cast<std::uint64_t>(info.image_width) * info.image_height > kMaxPixels) {
    std::strcpy(error.text, "more than 2^28 pixels");
    jpeg_destroy_decompress(&info);
    return false;
  }
  if (too_many(static_cast<std::uint64_t>(info.image_width) * info.image_height, bytes.size(), kJpegPixelsPerByte)) {
    std::strcpy(error.text, "its header claims more pixels than the file can hold");
    jpeg_destroy_decompress(&info);
    return false;
  }
  info.out_color_space = info.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(&info);
  image.width = static_cast<int>(info.output_width);
  image.height = static_cast<int>(info.output_height);
  image.channels = info.output_components;
  const std::size_t row = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.channels);
  image.pixels.resize(row * static_cast<std::size_t>(image.height));
  while (info.output_scanline < info.output_height) {
    JSAMPROW line = image.pixels.data() + row * info.output_scanline;
    jpeg_read_scanlines(&info, &line, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return true;
}

Result<Image> read_png(std::span<const std::byte> bytes, std::string_view what) {
  png_image png;
  std::memset(&png, 0, sizeof png);
  png.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) return bad(what, png.message);
  if (static_cast<std::uint64_t>(png.width) * png.height > kMaxPixels) {
    png_image_free(&png);
    return bad(what, fmt::format("{}x{} is more than 2^28 pixels", png.width, png.height));
  }
  if (too_many(static_cast<std::uint64_t>(png.width) * png.height, bytes.size(), kPngPixelsPerByte)) {
    png_image_free(&png);
    return bad(what, fmt::format("its header claims {}x{} pixels, more than a file of {} bytes can hold", png.width, png.height,
                                 bytes.size()));
  }
  const bool color = (png.format & PNG_FORMAT_FLAG_COLOR) != 0;
  png.format = color ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Image image{static_cast<int>(png.width), static_cast<int>(png.height), color ? 3 : 1, {}};
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  const png_color black{0, 0, 0};
  if (png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) == 0) return bad(what, png.message);
  return image;
}

}  // namespace

bool is_image(std::span<const std::byte> bytes) {
  return is_jpeg(bytes) || is_png(bytes);
}

Result<Image> decode_image(std::span<const std::byte> bytes, std::string_view what) {
  if (is_png(bytes)) return read_png(bytes, what);
  if (!is_jpeg(bytes)) return bad(what, "neither a JPEG nor a PNG file");
  Image image;
  JpegError error{};
  if (!read_jpeg(bytes, error, image)) return bad(what, error.text);
  return image;
}

}  // namespace octavo::cli
