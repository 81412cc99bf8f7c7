// Node's http and https as a client of the interop suite, over HTTP/1.1 in cleartext and TLS.
//
//   node http1-client.mjs get [--cacert FILE] URL...      prints a line a response: STATUS PROTOCOL BYTES SHA256
//   node http1-client.mjs put [--cacert FILE] FILE URL    prints a line: STATUS PROTOCOL
//
// Bodies are hashed as they pass and never held. The requests of a run share a connection.
import { createHash } from 'node:crypto';
import { createReadStream, readFileSync, statSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { finished } from 'node:stream/promises';

const [command, ...args] = process.argv.slice(2);
let ca;
if (args[0] === '--cacert') {
  ca = readFileSync(args[1]);
  args.splice(0, 2);
}

const agents = {
  'http:': new http.Agent({ keepAlive: true, maxSockets: 1 }),
  'https:': new https.Agent({ keepAlive: true, maxSockets: 1, ca, ALPNProtocols: ['http/1.1'] }),
};

function request(url, options) {
  const { protocol } = new URL(url);
  const { request } = protocol === 'https:' ? https : http;
  return request(url, { ...options, agent: agents[protocol] });
}

function responseOf(sent) {
  return new Promise((resolve, reject) => {
    sent.once('response', resolve);
    sent.once('error', reject);
  });
}

async function get(url) {
  const sent = request(url, { method: 'GET' });
  sent.end();
  const response = await responseOf(sent);
  const hash = createHash('sha256');
  let count = 0;
  for await (const chunk of response) {
    hash.update(chunk);
    count += chunk.length;
  }
  console.log(response.statusCode, `HTTP/${response.httpVersion}`, count, hash.digest('hex'));
}

// Waits for the response alone. Over TLS, Node 20 sometimes never says that a request was written (no 'finish', although
// its response has been read), whatever the server: 5 of 9,000 uploads to Node's own server.
async function put(file, url) {
  const sent = request(url, { method: 'PUT', headers: { 'content-length': statSync(file).size } });
  const source = createReadStream(file, { highWaterMark: 1 << 20 });
  source.once('error', (error) => sent.destroy(error));
  source.pipe(sent);
  const response = await responseOf(sent);
  await finished(response.resume());
  console.log(response.statusCode, `HTTP/${response.httpVersion}`);
}

try {
  if (command === 'get') {
    for (const url of args) {
      await get(url);
    }
  } else if (command === 'put' && args.length === 2) {
    await put(args[0], args[1]);
  } else {
    throw new Error('usage: http1-client.mjs get URL... | put FILE URL');
  }
  Object.values(agents).forEach((agent) => agent.destroy());
} catch (error) {
  console.error('peer:', error);
  process.exit(1);
}
