// Calls a shardcall server from its .proto files alone: node client.js [ADDRESS]
// The environment variable SHARDCALL_TOKEN holds the token, SHARDCALL_CA_CERTIFICATE the server's authority: the path of
// a PEM file, or its content, as `shardcall client-config` prints it.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const PROTOS = path.join(__dirname, "..", "..", "protos");
const definition = protoLoader.loadSync(
  ["shardcall/v1/kernel_service.proto", "shardcall/v1/server_info_service.proto"],
  { includeDirs: [PROTOS], longs: Number, enums: String, defaults: true },
);
const { shardcall } = grpc.loadPackageDefinition(definition);

const address = process.argv[2] || "localhost:8470";
const authority = process.env.SHARDCALL_CA_CERTIFICATE;
const credentials = authority ? grpc.credentials.createSsl(pemOf(authority)) : grpc.credentials.createInsecure();

// A token travels in the metadata of every call.
const metadata = new grpc.Metadata();
if (process.env.SHARDCALL_TOKEN) {
  metadata.set("authorization", `Bearer ${process.env.SHARDCALL_TOKEN}`);
}

function pemOf(pathOrContent) {
  return pathOrContent.trimStart().startsWith("-----BEGIN ") ? Buffer.from(pathOrContent) : fs.readFileSync(pathOrContent);
}

// A method as a function that returns a promise.
function caller(Service) {
  const client = new Service(address, credentials);
  return (method, request) =>
    new Promise((resolve, reject) => {
      const options = { deadline: Date.now() + 60_000 };
      client[method](request, metadata, options, (error, response) => (error ? reject(error) : resolve(response)));
    });
}

// An array of 64-bit floating-point numbers as an operand. The bytes are row-major and little-endian.
function operand(shape, values) {
  const data = Buffer.alloc(8 * values.length);
  values.forEach((value, i) => data.writeDoubleLE(value, 8 * i));
  return { type: { elementType: "ELEMENT_TYPE_FLOAT64", shape }, inline: { data } };
}

function valuesOf(result) {
  const { data } = result.inline;
  return Array.from({ length: data.length / 8 }, (_, i) => data.readDoubleLE(8 * i));
}

async function main() {
  const info = await caller(shardcall.v1.ServerInfoService)("GetServerInfo", {});
  console.log(`${address} has ${info.devices.length} ${info.platform} devices`);

  const call = {
    kernel: "diff",
    parameters: { axis: { intValue: 0 } },
    mesh: { axes: [{ name: "x", size: info.devices.length }], deviceIds: info.devices.map((device) => device.id) },
    inSpecs: [{ spec: { entries: [{ axisNames: ["x"] }] } }],
  };
  const squares = Array.from({ length: 16 }, (_, i) => i * i);
  const answer = await caller(shardcall.v1.KernelService)("Execute", { call, operands: [operand([16], squares)] });
  const differences = valuesOf(answer.results[0]);
  console.log(`diff by the strategy ${answer.plan.strategy}: ${differences.join(" ")}`);
  assert.deepStrictEqual(differences, Array.from({ length: 15 }, (_, i) => 2 * i + 1));
  console.log("the result is right");
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(`${grpc.status[error.code] || "error"}: ${error.details || error.stack}`);
    process.exit(1);
  },
);
