// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/proxy_input_source.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {

ProxyInputSource::ProxyInputSource(Owned<InputSource> source) : source_(std::move(source)) {
  TP_CHECK(static_cast<bool>(source_), "InputSource", "there is no source to wrap. Pass one.");
}

}  // namespace tensorpack
