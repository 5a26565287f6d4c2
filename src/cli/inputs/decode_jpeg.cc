#include <fmt/format.h>
#include <jpeglib.h>
// jerror.h needs jpeglib.h before it.
#include <jerror.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "cli/inputs/decode_image.h"
#include "cli/inputs/exif.h"

namespace octavo::cli {
namespace {

/// A byte of JPEG codes at most 8 blocks of 64 pixels (one bit each).
constexpr std::uint64_t kPixelsPerByte = 1024;

/// libjpeg reports fatal errors by a callback that must not return, and goes on after damage that it calls a warning.
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

/// Warnings that leave the pixels what the encoder meant: odd version and transform markers, and padding in front of the end marker
/// or of a segment. Bytes in front of a restart marker are lost data.
bool harmless(const jpeg_error_mgr& error) {
  constexpr int kFirstRestart = 0xd0, kLastRestart = 0xd7;
  switch (error.msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR: return true;
    case JWRN_EXTRANEOUS_DATA: return error.msg_parm.i[1] < kFirstRestart || error.msg_parm.i[1] > kLastRestart;
    default: return false;
  }
}

void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;  // traces
  if (!harmless(*info->err)) on_error(info);
}

int orientation_of(const jpeg_decompress_struct& info) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (const jpeg_marker_struct* m = info.marker_list; m != nullptr; m = m->next) {
    const std::span data(reinterpret_cast<const std::byte*>(m->data), m->data_length);
    if (m->marker != JPEG_APP0 + 1 || data.size() < kExif.size() || std::memcmp(data.data(), kExif.data(), kExif.size()) != 0)
      continue;
    return exif_orientation(data.subspan(kExif.size()));
  }
  return 1;
}

/// Everything between setjmp and longjmp is plain data: no destructor is skipped. Returns false with error.text set.
bool read_jpeg(std::span<const std::byte> bytes, JpegError& error, Image& image, int& orientation) {
  jpeg_decompress_struct info;
  info.err = jpeg_std_error(&error.base);
  error.base.error_exit = on_error;
  error.base.emit_message = on_message;
  if (setjmp(error.jump) != 0) {
    jpeg_destroy_decompress(&info);
    return false;
  }
  const auto refuse = [&](const char* why) {
    std::strcpy(error.text, why);
    jpeg_destroy_decompress(&info);
    return false;
  };
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_save_markers(&info, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&info, TRUE);
  orientation = orientation_of(info);
  if (info.num_components == 4) return refuse("a CMYK picture; convert it to RGB first");
  const std::uint64_t pixels = static_cast<std::uint64_t>(info.image_width) * info.image_height;
  if (pixels > kMaxPixels) return refuse("more than 2^28 pixels");
  if (too_many(pixels, bytes.size(), kPixelsPerByte)) return refuse("its header claims more pixels than the file can hold");
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

}  // namespace

Result<Image> decode_jpeg(std::span<const std::byte> bytes, std::string_view what) {
  Image image;
  JpegError error{};
  int orientation = 1;
  if (read_jpeg(bytes, error, image, orientation)) return upright(std::move(image), orientation);
  const bool ended = error.base.msg_code == JWRN_JPEG_EOF || error.base.msg_code == JERR_INPUT_EOF;
  if (ended)
    return bad_image(what, fmt::format("the JPEG file ends early, after {} bytes; copy or download it again", bytes.size()));
  return bad_image(what, error.text);
}

}  // namespace octavo::cli
