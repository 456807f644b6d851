// Streams of HTTP/1.1 requests for differential.mjs: a few good ones, changed where readers are known to disagree.

const tokenize = (text) => JSON.stringify({ content: text });
const with_length = (body, fields = "", path = "/tokenize") =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\n${fields}Content-Length: ${body.length}\r\n\r\n${body}`;
const chunk = (data, extension = "") => `${data.length.toString(16)}${extension}\r\n${data}\r\n`;
const with_chunks = (pieces, { fields = "", end = "0\r\n\r\n" } = {}) =>
  `POST /tokenize HTTP/1.1\r\nHost: a\r\n${fields}Transfer-Encoding: chunked\r\n\r\n${pieces.join("")}${end}`;
const get = (name, fields = "") => `GET /v1/models/${name} HTTP/1.1\r\nHost: a\r\n${fields}\r\n`;
const hidden = get("hidden");

const kRequests = [
  get("one"),
  get("one", "X-One: 1\r\nX-Two:\t2 \r\n"),
  get("one?a=b&c"),
  "GET http://a/v1/models/absolute HTTP/1.1\r\nHost: a\r\n\r\n",
  "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
  "GET /v1/models/old HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
  with_length(tokenize("one two three")),
  with_length(tokenize("expected"), "Expect: 100-continue\r\n"),
  with_length(tokenize("x"), "", "/none"),
  // A body that would be a request if it were not one.
  with_length(hidden),
  with_length(`${tokenize("short")}\r\n\r\n${hidden}`),
  with_length("", "X: y\r\n"),
  with_chunks([chunk(tokenize("chunked"))]),
  with_chunks([chunk('{"content":"'), chunk("two"), chunk('"}')]),
  with_chunks([chunk(tokenize("extended"), ";name=value"), ""], { end: "0\r\nX-Trailer: y\r\n\r\n" }),
  with_chunks([chunk(hidden, ' ; a = "b"')]),
  with_chunks([chunk("0\r\n\r\n"), chunk(hidden)]),
  `GET /v1/models/body HTTP/1.1\r\nHost: a\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
];

const kFields = [
  "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding : chunked\r\n",
  "Transfer-Encoding: chunked, identity\r\n", "Transfer-Encoding:\x0bchunked\r\n", "Transfer-Encoding: xchunked\r\n", "Transfer-Encoding: \"chunked\"\r\n",
  "Transfer-Encoding: chunked, chunked\r\n", "Transfer-Encoding:\r\n chunked\r\n", "Transfer-Encoding\r\n: chunked\r\n", "Transfer_Encoding: chunked\r\n",
  "X: y\nTransfer-Encoding: chunked\r\n", "X: y\rTransfer-Encoding: chunked\r\n", "\x00Transfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\x00\r\n",
  "Content-Length: 0\r\n", "Content-Length: 5\r\n", "Content-Length: +5\r\n", "Content-Length: 5, 5\r\n", "Content-Length: 0x5\r\n", "Content-Length: 5 \r\n",
  "Content-Length:\r\n", "Content-Length : 5\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: 00005\r\n", "Content-Length: -1\r\n",
  "Content-Length: 18446744073709551621\r\n", "Content-Length: 5\x0b\r\n", "Content-Length: 5\xa0\r\n", "content-length: 40\r\n", " Content-Length: 5\r\n",
  "Host: b\r\n", "Host: a:80\r\n", "Host:\r\n", "host: a\r\n", "Host: a, b\r\n", "Host: a/b\r\n", "Connection: close\r\n", "Connection: keep-alive\r\n",
  "Connection: Content-Length\r\n", "Connection: Transfer-Encoding\r\n", "Connection: Host\r\n", "Connection: upgrade\r\nUpgrade: websocket\r\n",
  "Connection: upgrade\r\nUpgrade: h2c\r\n", "Proxy-Connection: close\r\n", "Keep-Alive: timeout=5\r\n", "TE: trailers\r\n", "Trailer: Content-Length\r\n",
  "Expect: 100-continue\r\n", "Expect: 100-Continue \r\n", "Expect: x\r\n", "X-Request-Id: via.GET.1.1\r\n", "X:\r\n y\r\n", "X: \xff\xfe\r\n", ": y\r\n", "X\r\n",
  "X-HTTP-Method-Override: DELETE\r\n", "\r\n", "\n", "\r",
];
const kPieces = [
  "\r", "\n", "\r\n", "\n\n", "\r\n\r\n", " ", "\t", "\x00", "\x0b", "\x0c", "\x7f", "\x85", "\xa0", "\xff", ":", ";", ",", "=", "\"", "\\", "%", "%00", "%2f", "#", "?",
  "/", "//", "*", "0", "1", "5", "a", "f", "g", "0x", "+", "-", "_", "0\r\n\r\n", "0\r\n", "1\r\nx\r\n", "fffffffffffffff0\r\n", "100000000\r\n", ";a", ";a=\"\r\n\"", ";\n",
  " HTTP/1.1", " HTTP/1.0", " HTTP/2.0", "HTTP/1.1", "GET ", "POST ", "HTTP/1.1 200 OK\r\n\r\n", "chunked", "Host: a\r\n", hidden,
];

// Each takes a stream and returns another.
const kChanges = [
  // A field at the beginning of a line.
  (stream, below) => {
    const lines = stream.split("\r\n");
    const at = 1 + below(Math.max(1, lines.length - 1));
    return `${lines.slice(0, at).join("\r\n")}\r\n${kFields[below(kFields.length)]}${lines.slice(at).join("\r\n")}`;
  },
  // A field of the head in the place of another.
  (stream, below) => {
    const lines = stream.split("\r\n");
    lines[below(lines.length)] = kFields[below(kFields.length)].slice(0, -2);
    return lines.join("\r\n");
  },
  (stream, below) => {
    const at = below(stream.length + 1);
    return stream.slice(0, at) + kPieces[below(kPieces.length)] + stream.slice(at);
  },
  (stream, below) => {
    const at = below(stream.length);
    return stream.slice(0, at) + kPieces[below(kPieces.length)] + stream.slice(at + 1);
  },
  (stream, below) => {
    const at = below(stream.length);
    return stream.slice(0, at) + stream.slice(at + 1 + below(4));
  },
  // A line end that is not CRLF.
  (stream, below) => {
    const ends = [...stream.matchAll(/\r\n/g)].map((match) => match.index);
    if (ends.length === 0) return stream;
    const at = ends[below(ends.length)];
    return stream.slice(0, at) + ["\n", "\r", "\r\r\n", " \r\n", "\r\n ", "\r\n\t", "\n\r", "\r\n\r\n", ""][below(9)] + stream.slice(at + 2);
  },
  // A number that is another.
  (stream, below) => {
    const numbers = [...stream.matchAll(/[0-9a-f]+(?=\r\n|;)/g)];
    if (numbers.length === 0) return stream;
    const { 0: digits, index } = numbers[below(numbers.length)];
    const other = [`0${digits}`, `${digits}0`, `+${digits}`, `-${digits}`, ` ${digits}`, `${digits} `, `0x${digits}`, digits.toUpperCase(), `${digits}, ${digits}`,
      String(Number.parseInt(digits, 10) + 1), String(Math.max(0, Number.parseInt(digits, 10) - 1)), "0", "00", `${digits}_0`, `0000000000000000${digits}`];
    return stream.slice(0, index) + other[below(other.length)] + stream.slice(index + digits.length);
  },
  // A line twice.
  (stream, below) => {
    const lines = stream.split("\r\n");
    const at = below(lines.length);
    return [...lines.slice(0, at + 1), ...lines.slice(at)].join("\r\n");
  },
  // A line less.
  (stream, below) => {
    const lines = stream.split("\r\n");
    lines.splice(below(lines.length), 1);
    return lines.join("\r\n");
  },
  (stream, below) => {
    const at = below(stream.length);
    const byte = stream.charAt(at);
    return stream.slice(0, at) + (byte === byte.toLowerCase() ? byte.toUpperCase() : byte.toLowerCase()) + stream.slice(at + 1);
  },
];

// One to three requests, pipelined, with one to three changes.
export function mutated_stream(below) {
  let stream = "";
  for (let i = 1 + below(3); i > 0; --i) stream += kRequests[below(kRequests.length)];
  for (let i = 1 + below(1 + below(3)); i > 0; --i) stream = kChanges[below(kChanges.length)](stream, below);
  return stream;
}
