// SPDX-License-Identifier: Apache-2.0
// Runs ONNX models by onnxruntime on batches from safetensors files.
//
//   node run_onnx.js [MODEL INPUTS OUTPUTS]...
'use strict';
const fs = require('fs');
const ort = require('onnxruntime-node');

const kTypes = {
  F32: ['float32', Float32Array],
  I64: ['int64', BigInt64Array],
  BOOL: ['bool', Uint8Array],
};

function read(path) {
  const file = fs.readFileSync(path);
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.subarray(8, 8 + length).toString());
  const tensors = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    const [type, Elements] = kTypes[entry.dtype];
    const [begin, end] = entry.data_offsets;
    const bytes = new Uint8Array(file.subarray(8 + length + begin, 8 + length + end));
    tensors[name] = new ort.Tensor(type, new Elements(bytes.buffer), entry.shape);
  }
  return tensors;
}

function write(path, tensors) {
  const header = {};
  const parts = [];
  let offset = 0;
  for (const [name, tensor] of Object.entries(tensors)) {
    const dtype = Object.keys(kTypes).find((key) => kTypes[key][0] === tensor.type);
    const data = tensor.data;
    parts.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
    header[name] = {
      dtype, shape: tensor.dims, data_offsets: [offset, offset + data.byteLength],
    };
    offset += data.byteLength;
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  fs.writeFileSync(path, Buffer.concat([length, text, ...parts]));
}

async function main(paths) {
  for (let i = 0; i + 2 < paths.length; i += 3) {
    try {
      const session = await ort.InferenceSession.create(paths[i]);
      const batch = read(paths[i + 1]);
      const feeds = {};
      for (const name of session.inputNames) feeds[name] = batch[name];
      write(paths[i + 2], await session.run(feeds));
    } catch (error) {
      console.error(`${paths[i]}: ${error.message}`);
      process.exitCode = 1;
    }
  }
}

main(process.argv.slice(2));
