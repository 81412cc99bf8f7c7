// Node's http and https as a server of the interop suite, over HTTP/1.1 in cleartext and TLS.
//
//   node http1-server.mjs ROOT [CERT KEY]
//
// Prints "listening on URL", and for each body that it was sent "upload NAME BYTES SHA256". It answers an upload with that
// digest. Bodies are streamed and never held.
import { createHash } from 'node:crypto';
import { createReadStream, readFileSync, statSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import path from 'node:path';

const [root, cert, key] = process.argv.slice(2);
const server = cert
  ? https.createServer({ cert: readFileSync(cert), key: readFileSync(key), ALPNProtocols: ['http/1.1'] })
  : http.createServer();

server.on('request', (request, response) => {
  const name = path.basename(new URL(request.url, 'http://peer').pathname);
  if (request.method === 'PUT' || request.method === 'POST') {
    receive(request, response, name);
  } else if (request.method === 'GET' || request.method === 'HEAD') {
    send(response, path.join(root, name));
  } else {
    response.writeHead(405, { allow: 'GET, HEAD, POST, PUT' }).end();
  }
});

function send(response, file) {
  const stat = statSync(file, { throwIfNoEntry: false });
  if (!stat?.isFile()) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { 'content-length': stat.size });
  createReadStream(file, { highWaterMark: 1 << 18 }).pipe(response);
}

async function receive(request, response, name) {
  const hash = createHash('sha256');
  let count = 0;
  for await (const chunk of request) {
    hash.update(chunk);
    count += chunk.length;
  }
  const digest = hash.digest('hex');
  console.log(`upload ${name} ${count} ${digest}`);
  response.end(`${digest}\n`);
}

server.listen(0, '127.0.0.1', () => {
  console.log(`listening on ${cert ? 'https' : 'http'}://127.0.0.1:${server.address().port}`);
});
