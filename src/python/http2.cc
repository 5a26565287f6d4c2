// The compiled part of gRPC in `octavo serve`: one HTTP/2 connection, whose protocol is nghttp2's. It reads and writes no socket: bytes go in by feed() and
// give events, answers go in and give the bytes of take(). What the calls mean is in octavo/serve/_grpc_connection.py. One thread at a time.
// One class, past 400 lines: callbacks of the library and calls of Python share the streams of one connection.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

constexpr std::size_t kTaken = 1 << 18;  // bytes of one take(), about
constexpr std::size_t kSaid = 4096;      // bytes of one line of a call's head that are kept
constexpr std::size_t kSent = 1 << 16;   // bytes of an answer that were sent and may stay in front of those that were not

/// The bytes of an object, while this lives.
class Bytes {
 public:
  explicit Bytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~Bytes() { PyBuffer_Release(&view_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  [[nodiscard]] const std::uint8_t* data() const { return static_cast<const std::uint8_t*>(view_.buf); }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(view_.len); }
  [[nodiscard]] std::string_view text() const { return {static_cast<const char*>(view_.buf), size()}; }

 private:
  Py_buffer view_;
};

enum Kind { kBegin, kData, kEnd, kClosed };

struct Event {
  Kind kind;
  std::int32_t stream;
  std::size_t first, second;  // data: where in what was fed, and bytes; closed: nghttp2's code
};

/// What a call says of itself.
struct Head {
  std::string method, path, type, encoding, authorization, origin, timeout;
  bool operator==(const Head&) const = default;
};

struct Stream {
  Head head;
  bool held = false;      // its data are given back to the sender by consume()
  bool received = false;  // the client has sent all
  bool opened = false;    // the head of the answer is on its way
  bool ended = false;     // the answer is complete
  bool waits = false;     // nghttp2 has been told that there is nothing to send now
  std::string out;        // not sent yet, from `at` on
  std::size_t at = 0;
  std::string status, message;
};

nghttp2_nv line(std::string_view name, std::string_view value) {
  // nghttp2 copies both and writes to neither.
  return {reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

class Session {
 public:
  /// `streams`: calls at once; `window`: bytes of a call that may arrive before they are read; `frame`: of one frame.
  Session(std::uint32_t streams, std::uint32_t window, std::uint32_t frame) {
    nghttp2_session_callbacks* calls = nullptr;
    nghttp2_option* options = nullptr;
    if (nghttp2_session_callbacks_new(&calls) != 0 || nghttp2_option_new(&options) != 0) throw std::bad_alloc();
    nghttp2_session_callbacks_set_on_begin_headers_callback(calls, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(calls, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(calls, on_sent);
    nghttp2_session_callbacks_set_data_source_read_length_callback(calls, frame_bytes);
    nghttp2_option_set_no_auto_window_update(options, 1);
    const int made = nghttp2_session_server_new2(&session_, calls, this, options);
    nghttp2_session_callbacks_del(calls);
    nghttp2_option_del(options);
    if (made != 0) throw std::bad_alloc();
    const std::array<nghttp2_settings_entry, 4> settings{{{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, streams},
                                                          {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 1 << 14},
                                                          {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window},
                                                          {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, frame}}};
    check(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size()), "settings");
    check(nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, 0x7fffffff), "window");
  }
  ~Session() { nghttp2_session_del(session_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// What `data` means: tuples (kind, stream, a, b). Afterwards `broken` where the client does not keep to the protocol.
  nb::list feed(nb::handle data) {
    const Bytes bytes(data);
    fed_ = bytes.data();
    fed_size_ = bytes.size();
    events_.clear();
    if (nghttp2_session_mem_recv(session_, bytes.data(), bytes.size()) < 0) broken_ = true;
    fed_ = nullptr;
    nb::list out;
    for (const Event& e : events_) {
      if (e.kind == kBegin) {
        out.append(nb::make_tuple(int(kBegin), e.stream, head_of(e.stream), 0));
      } else {
        out.append(nb::make_tuple(int(e.kind), e.stream, e.first, e.second));
      }
    }
    for (const Event& e : events_)
      if (e.kind == kClosed) streams_.erase(e.stream);
    return out;
  }

  /// The client gets no more of this call, and what was not sent is forgotten. `code`: of HTTP/2.
  void reset(std::int32_t id, std::uint32_t code) {
    Stream* s = find(id);
    if (s == nullptr) return;
    s->ended = s->opened = true;
    std::string().swap(s->out);
    s->at = 0;
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, code);
  }

  [[nodiscard]] bool broken() const { return broken_; }
  /// Whether take() or gone() may have something.
  [[nodiscard]] bool sends() const { return nghttp2_session_want_write(session_) != 0 || !gone_.empty(); }
  /// The call whose data frame is being received, and the bytes of it that are still to come.
  [[nodiscard]] std::int32_t inside() const { return inside_; }
  [[nodiscard]] std::size_t rest() const { return rest_; }

  /// The call's data stay with the sender's account until consume() says that they were read.
  void hold(std::int32_t id) {
    if (Stream* s = find(id)) s->held = true;
  }
  void consume(std::int32_t id, std::size_t bytes) { nghttp2_session_consume_stream(session_, id, bytes); }

  /// One message of the answer: its parts, joined.
  void message(std::int32_t id, nb::handle parts) {
    Stream* s = find(id);
    if (s == nullptr || s->ended) return;
    std::size_t needed = 5;
    for (nb::handle part : nb::borrow<nb::sequence>(parts)) needed += Bytes(part).size();
    // A string that grows, by append() or reserve(), takes twice what it had: for large messages, which may never be read, it is made anew.
    const std::size_t left = s->out.size() - s->at;
    if (needed >= left && s->out.size() + needed > s->out.capacity()) {
      std::string out;
      out.reserve(left + needed);
      out.append(s->out, s->at);
      s->out.swap(out);
      s->at = 0;
    }
    const std::size_t begin = s->out.size();
    s->out.append(5, '\0');
    for (nb::handle part : nb::borrow<nb::sequence>(parts)) s->out.append(Bytes(part).text());
    const std::size_t size = s->out.size() - begin - 5;
    if (size > 0xffffffffU) throw std::length_error("a message of gRPC has at most 4 GiB");
    for (int i = 0; i < 4; ++i) s->out[begin + 1 + std::size_t(i)] = static_cast<char>(size >> (24 - 8 * i));
    send(id, *s);
  }

  /// The end of the answer; `text` is percent-encoded.
  void finish(std::int32_t id, int status, nb::bytes text) {
    Stream* s = find(id);
    if (s == nullptr || s->ended) return;
    s->ended = true;
    s->status = std::to_string(status);
    s->message.assign(text.c_str(), text.size());
    send(id, *s);
  }

  /// An answer of HTTP's own, for what is no gRPC.
  void refuse(std::int32_t id, int status) {
    Stream* s = find(id);
    if (s == nullptr || s->ended || s->opened) return;
    s->ended = s->opened = true;
    const std::string text = std::to_string(status);
    const std::array<nghttp2_nv, 1> head{line(":status", text)};
    nghttp2_submit_response(session_, id, head.data(), head.size(), nullptr);
  }

  /// Bytes of the call's answer that the client has not taken yet.
  [[nodiscard]] std::size_t waiting(std::int32_t id) {
    const Stream* s = find(id);
    return s == nullptr ? 0 : s->out.size() - s->at;
  }

  /// No further calls; those that are under way go on.
  void shut() {
    nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR, nullptr,
                          0);
  }

  /// Calls that ended in take(): answered as a whole, reset, or refused by nghttp2. Each is told once.
  std::vector<std::int32_t> gone() { return std::exchange(gone_, {}); }

  /// What is to be sent now; b"": nothing, or the client does not take more.
  nb::bytes take() {
    std::string out;
    while (out.size() < kTaken) {
      const std::uint8_t* data = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &data);
      if (size < 0) broken_ = true;
      if (size <= 0) break;
      out.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
    }
    return nb::bytes(out.data(), out.size());
  }

 private:
  static void check(int code, const char* what) {
    if (code != 0) throw std::runtime_error(std::string("nghttp2: ") + what + ": " + nghttp2_strerror(code));
  }

  Stream* find(std::int32_t id) {
    const auto found = streams_.find(id);
    return found == streams_.end() ? nullptr : &found->second;
  }

  /// The same object for the same head: the next call of a connection says mostly what the last one said.
  nb::object head_of(std::int32_t id) {
    const Stream* s = find(id);
    if (s == nullptr) return nb::none();
    if (!said_.is_valid() || !(s->head == last_)) {
      last_ = s->head;
      const auto bytes = [](const std::string& text) { return nb::bytes(text.data(), text.size()); };
      said_ = nb::make_tuple(bytes(last_.method), bytes(last_.path), bytes(last_.type), bytes(last_.encoding),
                             bytes(last_.authorization), bytes(last_.origin), bytes(last_.timeout));
    }
    return said_;
  }

  void send(std::int32_t id, Stream& s) {
    if (!s.opened) {
      s.opened = true;
      if (s.ended && s.out.empty()) {
        const std::array<nghttp2_nv, 4> head{line(":status", "200"), line("content-type", "application/grpc"),
                                             line("grpc-status", s.status), line("grpc-message", s.message)};
        nghttp2_submit_response(session_, id, head.data(), s.message.empty() ? 3 : 4, nullptr);
        return;
      }
      const std::array<nghttp2_nv, 3> head{line(":status", "200"), line("content-type", "application/grpc"),
                                           line("grpc-accept-encoding", "identity, deflate, gzip")};
      nghttp2_data_provider source{};
      source.read_callback = read;
      nghttp2_submit_response(session_, id, head.data(), head.size(), &source);
    } else if (s.waits) {
      s.waits = false;
      nghttp2_session_resume_data(session_, id);
    }
  }

  static ssize_t read(nghttp2_session* session, std::int32_t id, std::uint8_t* to, std::size_t length, std::uint32_t* flags,
                      nghttp2_data_source*, void* user) {
    Stream* s = static_cast<Session*>(user)->find(id);
    if (s == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const std::size_t size = std::min(length, s->out.size() - s->at);
    if (size == 0 && !s->ended) {
      s->waits = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    std::memcpy(to, s->out.data() + s->at, size);
    s->at += size;
    if (s->at >= kSent && 2 * s->at >= s->out.size() && s->at < s->out.size()) {  // a stream may never be empty
      s->out.erase(0, s->at);
      s->at = 0;
    }
    if (s->at == s->out.size()) {
      s->out.clear();
      s->at = 0;
      if (s->ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        const std::array<nghttp2_nv, 2> tail{line("grpc-status", s->status), line("grpc-message", s->message)};
        if (nghttp2_submit_trailer(session, id, tail.data(), s->message.empty() ? 1 : 2) != 0)
          return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
      }
    }
    return static_cast<ssize_t>(size);
  }

  static ssize_t frame_bytes(nghttp2_session*, std::uint8_t, std::int32_t, std::int32_t connection, std::int32_t stream,
                             std::uint32_t frame, void*) {
    return std::max<ssize_t>(1, std::min<ssize_t>({connection, stream, static_cast<ssize_t>(frame), ssize_t{1} << 18}));
  }

  static int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
      static_cast<Session*>(user)->streams_[frame->hd.stream_id] = {};
    return 0;
  }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_size,
                       const std::uint8_t* value, std::size_t size, std::uint8_t, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    Stream* s = static_cast<Session*>(user)->find(frame->hd.stream_id);
    if (s == nullptr) return 0;
    const std::string_view key(reinterpret_cast<const char*>(name), name_size);
    const std::string_view text(reinterpret_cast<const char*>(value), std::min(size, kSaid));
    if (key == ":method") s->head.method = text;
    if (key == ":path") s->head.path = text;
    if (key == "content-type") s->head.type = text;
    if (key == "grpc-encoding") s->head.encoding = text;
    if (key == "grpc-timeout") s->head.timeout = text;
    if (key == "authorization") s->head.authorization = text;
    if (key == "origin") s->head.origin = text;
    return 0;
  }

  static int on_begin_frame(nghttp2_session*, const nghttp2_frame_hd* hd, void* user) {
    auto* self = static_cast<Session*>(user);
    const bool plain = hd->type == NGHTTP2_DATA && (hd->flags & NGHTTP2_FLAG_PADDED) == 0;
    self->inside_ = plain ? hd->stream_id : 0;
    self->rest_ = plain ? hd->length : 0;
    return 0;
  }

  static int on_data(nghttp2_session* session, std::uint8_t, std::int32_t id, const std::uint8_t* data, std::size_t size,
                     void* user) {
    auto* self = static_cast<Session*>(user);
    self->rest_ -= std::min(size, self->rest_);
    nghttp2_session_consume_connection(session, size);
    const Stream* s = self->find(id);
    if (s == nullptr || !s->held) nghttp2_session_consume_stream(session, id, size);
    const auto at = static_cast<std::size_t>(data - self->fed_);
    if (s != nullptr && at <= self->fed_size_ && size <= self->fed_size_ - at) self->events_.push_back({kData, id, at, size});
    return 0;
  }

  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    auto* self = static_cast<Session*>(user);
    const bool begins = frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
    if (begins) self->events_.push_back({kBegin, frame->hd.stream_id, 0, 0});
    if (frame->hd.type == NGHTTP2_DATA) self->rest_ = 0;
    if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      if (Stream* s = self->find(frame->hd.stream_id)) {
        s->received = true;
        self->events_.push_back({kEnd, frame->hd.stream_id, 0, 0});
      }
    }
    return 0;
  }

  /// An answer that ended before the request did: the client need not send the rest.
  static int on_sent(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
    const Stream* s = static_cast<Session*>(user)->find(frame->hd.stream_id);
    if (s != nullptr && !s->received) nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
  }

  static int on_close(nghttp2_session*, std::int32_t id, std::uint32_t code, void* user) {
    auto* self = static_cast<Session*>(user);
    if (self->fed_ != nullptr) {
      self->events_.push_back({kClosed, id, code, 0});
    } else {
      if (self->streams_.erase(id) != 0) self->gone_.push_back(id);
    }
    return 0;
  }

  nghttp2_session* session_ = nullptr;
  std::unordered_map<std::int32_t, Stream> streams_;
  std::vector<Event> events_;
  std::vector<std::int32_t> gone_;
  const std::uint8_t* fed_ = nullptr;
  std::size_t fed_size_ = 0, rest_ = 0;
  std::int32_t inside_ = 0;
  bool broken_ = false;
  Head last_;
  nb::object said_;
};

}  // namespace

NB_MODULE(_http2, m) {
  m.attr("BEGIN") = int(kBegin);
  m.attr("DATA") = int(kData);
  m.attr("END") = int(kEnd);
  m.attr("CLOSED") = int(kClosed);
  nb::class_<Session>(m, "Session")
      .def(nb::init<std::uint32_t, std::uint32_t, std::uint32_t>(), "streams"_a, "window"_a, "frame"_a)
      .def("feed", &Session::feed, "data"_a)
      .def_prop_ro("broken", &Session::broken)
      .def_prop_ro("sends", &Session::sends)
      .def_prop_ro("inside", &Session::inside)
      .def_prop_ro("rest", &Session::rest)
      .def("hold", &Session::hold, "stream"_a)
      .def("consume", &Session::consume, "stream"_a, "bytes"_a)
      .def("message", &Session::message, "stream"_a, "parts"_a)
      .def("finish", &Session::finish, "stream"_a, "status"_a, "text"_a)
      .def("refuse", &Session::refuse, "stream"_a, "status"_a)
      .def("waiting", &Session::waiting, "stream"_a)
      .def("reset", &Session::reset, "stream"_a, "code"_a)
      .def("shut", &Session::shut)
      .def("gone", &Session::gone)
      .def("take", &Session::take);
}
