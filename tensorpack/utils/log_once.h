// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tensorpack::logging {

/// Lets what info_once() and warning_once() have logged be logged once more: for tests, each of
/// which stands for a process.
void forget_logged_once();

}  // namespace tensorpack::logging
