// SPDX-License-Identifier: Apache-2.0
#include <gloo/rendezvous/store.h>
