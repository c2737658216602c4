# An identity verification service in Ruby with websocket-driver, written from docs/service-interface.md alone. Where that is silent: a
# registration answers with the bare token as text, the channel is /ws/device with the subprotocol idv.device.v1, its first message is
# the Connection, notifications are JSON lines, and a device that does not answer its `ping` is cut. Arguments: user and password.
require 'base64'
require 'json'
require 'securerandom'
require 'socket'
require 'time'
require 'uri'
require 'websocket/driver'

$stdout.sync = true
BASIC = "Basic #{Base64.strict_encode64(ARGV[0, 2].join(':'))}"
CODES, KEYS, CONNECTIONS = {}, {}, {}
LOCK = Mutex.new
$number = 0

Wire = Struct.new(:url, :socket, :protocols) do
  def write(bytes) = (socket.write(bytes) rescue nil)
end

def allowed(given, permission)
  given == BASIC || (KEYS[given.to_s[/\AApiKey (.*)/, 1]] || []).include?(permission)
end

def route(method, uri, headers, body, host)
  given = headers['authorization']
  workflow = URI.decode_www_form(uri.query.to_s).to_h['workflowId']
  case [method, uri.path]
  when ['GET', '/api/deeplink/qrcode']
    return [401, { detail: 'operators only' }] unless allowed(given, 'ephemeral_device:write')
    code = SecureRandom.alphanumeric(28)
    CODES[code] = workflow
    [200, "http://#{host}/mobile?authorization=Token%20#{code}&workflowId=#{workflow}"]
  when ['POST', '/api/security/apikey']
    return [401, { detail: 'operators only' }] unless given == BASIC
    wanted, key = JSON.parse(body), SecureRandom.hex(20)
    KEYS[key] = wanted['permissions']
    [201, { id: SecureRandom.uuid, token: key, name: wanted['name'], permissions: wanted['permissions'] }]
  when ['POST', '/api/v1/deeplink']
    return [403, { detail: 'deeplink:write is missing' }] unless allowed(given, 'deeplink:write')
    url = "http://#{host}/mobile?authorization=Token%20#{SecureRandom.hex(14)}&sessionId=#{SecureRandom.hex(12)}"
    [200, { url: url, createdAt: Time.now.utc.iso8601, expiresAt: (Time.now + 3600).utc.iso8601, workflowIds: [workflow] }]
  when ['POST', '/api/device/connection']
    code = given.to_s[/\AToken (.*)/, 1]
    unless CODES.delete(code) || allowed(given, 'ephemeral_device:write')
      puts 'lost'
      return [401, { detail: 'this code is used up' }]
    end
    token = SecureRandom.urlsafe_base64(32)
    CONNECTIONS[token] = JSON.parse(body)['deviceId']
    [200, token]
  else
    [404, { detail: 'no such resource' }]
  end
end

def serve_channel(socket, host, path, request)
  driver = WebSocket::Driver.server(Wire.new("ws://#{host}#{path}", socket), protocols: ['idv.device.v1'])
  state = { device: nil, answered: Time.now }
  driver.on(:connect) { |_| driver.start }
  driver.on(:message) do |event|
    said = JSON.parse(event.data) rescue {}
    if said['type'] == 'authenticate'
      state[:device] = CONNECTIONS[said['token']]
      driver.text(JSON.generate(type: 'authenticated')) if state[:device]
      driver.close('unknown token', 4401) unless state[:device]
    elsif said['type'] == 'pong'
      state[:answered] = Time.now
    end
  end
  driver.on(:close) { |_| socket.close rescue nil }
  Thread.new do
    sleep 0.8
    LOCK.synchronize { driver.close('authenticate first', 4403) } unless state[:device]
    until socket.closed?
      LOCK.synchronize do
        driver.text(JSON.generate(type: 'ping'))
        driver.close('no pong', 4408) if Time.now - state[:answered] > 2
        two = Array.new(2) do
          $number += 1
          kind = %w[person.detected person.left][$number % 2]
          puts "sent #{state[:device]} #{$number} #{kind}" if state[:device]
          JSON.generate(type: 'notification', notification: { name: kind, uuid: $number.to_s })
        end
        driver.text(two.join("\n")) if state[:device]
      end
      sleep 0.4
    end
  rescue IOError, Errno::EPIPE, Errno::ECONNRESET
    nil
  end
  driver.parse(request)
  while (bytes = socket.readpartial(4096))
    LOCK.synchronize { driver.parse(bytes) }
  end
rescue IOError, Errno::ECONNRESET, Errno::EPIPE
  nil
end

def serve(socket)
  head = +''
  head << socket.readpartial(4096) until head.include?("\r\n\r\n")
  top, rest = head.split("\r\n\r\n", 2)
  first, *lines = top.split("\r\n")
  method, path, = first.split(' ')
  headers = lines.to_h { |line| name, value = line.split(': ', 2); [name.downcase, value] }
  host = headers['host']
  if headers['upgrade'] && URI(path).path == '/ws/device'
    offered = headers['sec-websocket-protocol'].to_s.split(/, */)
    return serve_channel(socket, host, path, head) if offered.include?('idv.device.v1')
    answer = [400, { detail: 'The channel speaks the subprotocol "idv.device.v1".' }]
  else
    size = headers['content-length'].to_i
    rest << socket.readpartial(4096) while rest.bytesize < size
    answer = route(method, URI(path), headers, rest, host)
  end
  status, said = answer
  text = said.is_a?(String) ? said : JSON.generate(said)
  type = said.is_a?(String) ? 'text/plain' : 'application/json'
  socket.write("HTTP/1.1 #{status} Answer\r\ncontent-type: #{type}\r\ncontent-length: #{text.bytesize}\r\nconnection: close\r\n\r\n#{text}")
  socket.close
rescue EOFError, Errno::ECONNRESET, Errno::EPIPE
  socket.close rescue nil
end

server = TCPServer.new('127.0.0.1', 0)
puts "port #{server.addr[1]}"
loop { Thread.new(server.accept) { |socket| serve(socket) } }
