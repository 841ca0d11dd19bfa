// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/remote/zmq.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <zmq.hpp>

#include "tensorpack/dataflow/format/serialize.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/stop_flag.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

// How long is waited before looking whether the process or the thread is to end.
constexpr int kPatienceMs = 100;
// How long a sender that is done waits for what is still on its way.
constexpr int kLingerMs = 30'000;
constexpr size_t kKeyLength = 40;  // in the text form of ZeroMQ

std::string read_key(const fs::path& path) {
  std::string key = read_file(path);
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  TP_CHECK(key.size() == kKeyLength, "CURVE",
           "'{}' has {} characters, a key has {}. Make keys with write_curve_keys().",
           path.string(), key.size(), kKeyLength);
  return key;
}

bool is_local(const std::string& address) {
  for (const char* local :
       {"tcp://127.", "tcp://localhost:", "tcp://[::1]:", "ipc://", "inproc://"}) {
    if (address.starts_with(local)) return true;
  }
  return false;
}

class Socket {
 public:
  Socket(const char* where, zmq::socket_type type, const std::vector<std::string>& addresses,
         bool bind, const ZmqOptions& options)
      : socket_(context_, type) {
    TP_CHECK(!addresses.empty(), where, "there is no address. Pass one.");
    TP_CHECK(options.high_water_mark > 0 && options.max_bytes > 0, where,
             "the high water mark {} and the most bytes {} must be positive.",
             options.high_water_mark, options.max_bytes);
    socket_.set(zmq::sockopt::sndhwm, options.high_water_mark);
    socket_.set(zmq::sockopt::rcvhwm, options.high_water_mark);
    socket_.set(zmq::sockopt::maxmsgsize, options.max_bytes);
    socket_.set(zmq::sockopt::linger, 0);
    if (options.curve) encrypt(where, *options.curve, bind);
    for (const std::string& address : addresses) {
      TP_CHECK(options.curve || options.allow_unencrypted || is_local(address), where,
               "anybody on the network could read or write '{}'. Set .curve to keys, use an "
               "address of this machine (tcp://127.0.0.1:port), or set .allow_unencrypted.",
               address);
      open(where, address, bind);
    }
  }

  zmq::socket_t& operator*() { return socket_; }
  zmq::socket_t* operator->() { return &socket_; }

 private:
  void encrypt(const char* where, const CurveKeys& keys, bool bind) {
    TP_CHECK(zmq_has("curve"), where, "this ZeroMQ was built without CURVE. Install another one.");
    const std::string secret = read_key(keys.secret_key_file);
    std::array<char, kKeyLength + 1> own_public = {};
    TP_CHECK(zmq_curve_public(own_public.data(), secret.c_str()) == 0, where,
             "'{}' has no key in it. Make keys with write_curve_keys().",
             keys.secret_key_file.string());
    socket_.set(zmq::sockopt::curve_secretkey, secret);
    socket_.set(zmq::sockopt::curve_publickey, std::string(own_public.data()));
    if (bind) {
      socket_.set(zmq::sockopt::curve_server, true);
    } else {
      TP_CHECK(!keys.peer_public_key_file.empty(), where,
               "the side that connects needs the public key of the other. Set "
               ".peer_public_key_file.");
      socket_.set(zmq::sockopt::curve_serverkey, read_key(keys.peer_public_key_file));
    }
  }

  void open(const char* where, const std::string& address, bool bind) {
    try {
      bind ? socket_.bind(address) : socket_.connect(address);
    } catch (const zmq::error_t& error) {
      throw make_error(where,
                       "cannot {} '{}': {}. Check the address, and that no one else uses it.",
                       bind ? "bind" : "connect to", address, error.what());
    }
  }

  zmq::context_t context_;
  zmq::socket_t socket_;
};

zmq::message_t message_of(const DataPoint& point, int64_t max_bytes) {
  const size_t size = serialized_size(point);
  TP_CHECK(static_cast<int64_t>(size) <= max_bytes, "send_dataflow_zmq",
           "a datapoint takes {} bytes, more than the {} allowed. Set .max_bytes at both ends.",
           size, max_bytes);
  zmq::message_t message(size);
  serialize_into(point, message.data<char>());
  return message;
}

// Waits for a while until the socket can send or has received something. A signal ends the wait.
void wait_for(zmq::socket_t& socket, short events) {
  zmq::pollitem_t item{socket.handle(), 0, events, 0};
  if (zmq_poll(&item, 1, kPatienceMs) < 0 && zmq_errno() != EINTR) throw zmq::error_t();
}

// Waits for room; false when this thread is to end.
bool send(zmq::socket_t& socket, zmq::message_t message) {
  while (true) {
    if (socket.send(message, zmq::send_flags::dontwait)) return true;
    if (const int signal = signal_to_give_up()) throw Interrupted(signal);
    if (stop_requested()) return false;
    wait_for(socket, ZMQ_POLLOUT);
  }
}

// The bytes of a message, without a copy if they lie as numbers must.
at::Tensor bytes_of(zmq::message_t message) {
  const auto size = static_cast<int64_t>(message.size());
  const auto shared = std::make_shared<zmq::message_t>(std::move(message));
  const at::Tensor bytes = at::from_blob(
      shared->data(), {size}, [shared](void*) {}, at::kByte);
  const bool is_aligned = reinterpret_cast<uintptr_t>(shared->data()) % alignof(int64_t) == 0;
  return is_aligned ? bytes : bytes.clone();
}

std::string layout_of(const DataPoint& point) {
  std::vector<std::string> components;
  for (const at::Tensor& tensor : point) {
    components.push_back(fmt::format("{} in {}", c10::toString(tensor.scalar_type()),
                                     counted(tensor.dim(), "dimension")));
  }
  return fmt::format("{{{}}}", fmt::join(components, "; "));
}

}  // namespace

void write_curve_keys(const fs::path& path) {
  std::array<char, kKeyLength + 1> public_key = {};
  std::array<char, kKeyLength + 1> secret_key = {};
  TP_CHECK(zmq_curve_keypair(public_key.data(), secret_key.data()) == 0, "write_curve_keys",
           "this ZeroMQ was built without CURVE. Install another one.");
  const fs::path secret = path.string() + ".secret";
  write_file_atomically(secret, "");
  fs::permissions(secret, fs::perms::owner_read | fs::perms::owner_write);
  {
    // Not replaced, so that it keeps its permissions from before there is anything in it.
    std::ofstream file(secret);
    file << secret_key.data() << '\n';
    TP_CHECK(file.good(), "write_curve_keys", "cannot write '{}'.", secret.string());
  }
  write_file_atomically(path.string() + ".public", std::string(public_key.data()) + "\n");
}

int64_t send_dataflow_zmq(DataFlow& flow, const std::string& address, SendZmqOptions options) {
  Socket socket("send_dataflow_zmq", zmq::socket_type::push, {address}, options.bind, options.zmq);
  logging::info("Datapoints are sent to '{}'.", address);
  int64_t count = 0;
  for (int64_t pass = 0; options.passes == kForever || pass < options.passes; ++pass) {
    flow.start(pass);
    const int64_t before = count;
    while (const auto point = flow.next()) {
      if (!send(*socket, message_of(*point, options.zmq.max_bytes))) return count;
      ++count;
    }
    TP_CHECK(count > before || options.passes != kForever, "send_dataflow_zmq",
             "pass {} of the flow has no datapoints, so going on would never send one.", pass);
  }
  socket->set(zmq::sockopt::linger, kLingerMs);
  return count;
}

struct RemoteDataZMQ::Impl {
  Impl(const std::vector<std::string>& a, RemoteDataOptions o)
      : addresses(fmt::format("{}", fmt::join(a, ", "))),
        options(std::move(o)),
        socket("RemoteDataZMQ", zmq::socket_type::pull, a, options.bind, options.zmq) {}

  // Waits for a datapoint; nullopt when this thread is to end.
  std::optional<DataPoint> receive() {
    constexpr double kTellAfter = 10;
    std::optional<Timer> timer;  // most datapoints are there already
    bool has_told = false;
    zmq::message_t message;
    while (true) {
      if (socket->recv(message, zmq::recv_flags::dontwait)) {
        if (auto point = datapoint_of(message)) return point;
      }
      if (const int signal = signal_to_give_up()) throw Interrupted(signal);
      if (stop_requested()) return std::nullopt;
      if (!timer) timer.emplace();
      TP_CHECK(options.timeout_seconds <= 0 || timer->seconds() < options.timeout_seconds,
               "RemoteDataZMQ", "nothing came to '{}' for {} s. Are the senders running?",
               addresses, options.timeout_seconds);
      if (!has_told && timer->seconds() > kTellAfter) {
        has_told = true;
        logging::warning("RemoteDataZMQ waits for data at '{}'.", addresses);
      }
      wait_for(*socket, ZMQ_POLLIN);
    }
  }

  // Nothing for what no sender of ours sends: another program, or somebody who disturbs, does not
  // end a training.
  std::optional<DataPoint> datapoint_of(zmq::message_t& message) {
    constexpr size_t kShown = 16;
    const std::string beginning(message.data<char>(), std::min(message.size(), kShown));
    const size_t size = message.size();
    try {
      return deserialize(bytes_of(std::move(message)), "RemoteDataZMQ '" + addresses + "'");
    } catch (const Error& error) {
      ++malformed;
      const bool is_power_of_two = (malformed & (malformed - 1)) == 0;
      if (is_power_of_two) {
        logging::warning(
            "{} The message of {}, which begins with \"{}\", is left out; there have been {} like "
            "it. Is another program sending to that address?",
            error.what(), counted(static_cast<int64_t>(size), "byte"), printable(beginning),
            malformed);
      }
      return std::nullopt;
    }
  }

  void check_layout(const DataPoint& point) {
    std::string found = layout_of(point);
    if (layout.empty()) layout = found;
    TP_CHECK(found == layout, "RemoteDataZMQ",
             "a datapoint that came to '{}' is {}, the first one was {}. Send the same from all.",
             addresses, found, layout);
  }

  std::string addresses;
  RemoteDataOptions options;
  Socket socket;
  std::string layout;
  int64_t malformed = 0;  // messages that are no datapoints
};

RemoteDataZMQ::RemoteDataZMQ(std::vector<std::string> addresses, RemoteDataOptions options)
    : impl_(std::make_unique<Impl>(addresses, std::move(options))) {}
RemoteDataZMQ::RemoteDataZMQ(RemoteDataZMQ&&) noexcept = default;
RemoteDataZMQ::~RemoteDataZMQ() = default;

std::optional<DataPoint> RemoteDataZMQ::next() {
  auto point = impl_->receive();
  if (point) impl_->check_layout(*point);
  return point;
}

}  // namespace tensorpack
