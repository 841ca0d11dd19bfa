// SPDX-License-Identifier: Apache-2.0
// The few questions to the network that decide how processes find each other.
#pragma once

#include <chrono>
#include <string>

namespace tensorpack::detail {

/// Waits until somebody listens at the port; what was wrong at the last try when nobody did until
/// `deadline`, else an empty text.
std::string wait_for_port(const std::string& address, int port,
                          std::chrono::steady_clock::time_point deadline);

/// Sends `question` to what listens at the port; what was wrong when `expected` was not the answer
/// until `deadline`, else an empty text.
std::string check_answer(const std::string& address, int port, const std::string& question,
                         const std::string& expected,
                         std::chrono::steady_clock::time_point deadline);

/// The address, in numbers, that this host has on the way to another; empty when there is none.
std::string local_address_towards(const std::string& address, int port);

/// Whether an address in numbers means the host itself.
bool is_loopback(const std::string& address);

std::string host_name();

}  // namespace tensorpack::detail
