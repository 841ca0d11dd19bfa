// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tensorpack {

/// A TCP port of this host that nobody uses now, and that no outgoing connection will be given.
int free_port();

}  // namespace tensorpack
