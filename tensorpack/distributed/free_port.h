// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tensorpack {

/// A TCP port of this host that nobody listens on now.
int free_port();

}  // namespace tensorpack
