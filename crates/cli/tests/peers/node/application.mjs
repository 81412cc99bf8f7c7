// An application of the interop suite on Node's http: what a page of a browser asks for, and echoes.
//
// `/images/N.bmp` is an image, `/sound` is sought by ranges, `/upload` counts octets, `/socket` echoes over a WebSocket.
// What is posted to `/report` is printed.
import crypto from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';

// Ten minutes of 8,000 samples a second, one octet each.
const SECONDS = 600;
const RATE = 8_000;
const wave = Buffer.alloc(44 + SECONDS * RATE, 128);
wave.write('RIFF', 0);
wave.writeUInt32LE(36 + SECONDS * RATE, 4);
wave.write('WAVEfmt ', 8);
wave.writeUInt32LE(16, 16);
wave.writeUInt16LE(1, 20);
wave.writeUInt16LE(1, 22);
wave.writeUInt32LE(RATE, 24);
wave.writeUInt32LE(RATE, 28);
wave.writeUInt16LE(1, 32);
wave.writeUInt16LE(8, 34);
wave.write('data', 36);
wave.writeUInt32LE(SECONDS * RATE, 40);

const image = (number) => {
  const side = 8;
  const file = Buffer.alloc(54 + 3 * side * side);
  file.write('BM', 0);
  file.writeUInt32LE(file.length, 2);
  file.writeUInt32LE(54, 10);
  file.writeUInt32LE(40, 14);
  file.writeUInt32LE(side, 18);
  file.writeUInt32LE(side, 22);
  file.writeUInt16LE(1, 26);
  file.writeUInt16LE(24, 28);
  file.writeUInt32LE(3 * side * side, 34);
  for (let at = 54; at < file.length; at += 3) file.set([number % 256, (number >> 8) * 64, 255 - (number % 256)], at);
  return file;
};

const answer = (response, kind, body, status = 200, more = {}) => {
  response.writeHead(status, { 'content-type': kind, 'content-length': body.length, ...more });
  response.end(body);
};

const server = http.createServer((request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => {
    const body = Buffer.concat(pieces);
    const path = request.url;
    if (path === '/') return answer(response, 'text/html', fs.readFileSync(new URL('../page.html', import.meta.url)));
    if (path === '/upload') return answer(response, 'text/plain', `${body.length}`);
    if (path === '/report') {
      console.log(`report ${body}`);
      return answer(response, 'text/plain', 'thanks');
    }
    if (path.startsWith('/images/')) return answer(response, 'image/bmp', image(parseInt(path.slice(8))));
    if (path !== '/sound') return answer(response, 'text/plain', 'there is no such thing', 404);
    const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    if (!range) return answer(response, 'audio/wav', wave, 200, { 'accept-ranges': 'bytes' });
    const first = Number(range[1]);
    const last = Math.min(Number(range[2] || wave.length - 1), wave.length - 1);
    console.log(`range ${first}`);
    const part = { 'accept-ranges': 'bytes', 'content-range': `bytes ${first}-${last}/${wave.length}` };
    return answer(response, 'audio/wav', wave.subarray(first, last + 1), 206, part);
  });
});

// Frames of less than 126 octets, each in one piece, come back without their masks.
server.on('upgrade', (request, socket) => {
  const accept = crypto
    .createHash('sha1')
    .update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest('base64');
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`
  );
  let read = Buffer.alloc(0);
  socket.on('data', (data) => {
    read = Buffer.concat([read, data]);
    while (read.length >= 6 && read.length >= 6 + (read[1] & 127)) {
      const length = read[1] & 127;
      const mask = read.subarray(2, 6);
      const payload = Buffer.from(read.subarray(6, 6 + length).map((octet, at) => octet ^ mask[at % 4]));
      socket.write(Buffer.concat([Buffer.from([read[0], length]), payload]));
      if ((read[0] & 15) === 8) socket.end();
      read = read.subarray(6 + length);
    }
  });
  socket.on('error', () => {});
});
server.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
