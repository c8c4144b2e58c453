# frozen_string_literal: true

require "socket"

# Supports enough of HTTP to serve a Rack application, one request for each connection.
class HTTPServer
  def initialize(app)
    @app = app
    @server = TCPServer.new("127.0.0.1", 0)
    @thread = Thread.new { loop { serve(@server.accept) } }
    @thread.report_on_exception = false
  end

  # @return [URI]
  def url(path = "/metrics") = URI("http://127.0.0.1:#{@server.addr[1]}#{path}")

  def close
    @thread.kill.join
    @server.close
  end

  private

  def serve(socket)
    method, path, = socket.gets.split
    size = 0
    until (line = socket.gets.chomp).empty?
      size = Integer(line[/\d+\z/]) if line.match?(/\Acontent-length:/i)
    end
    socket.read(size) # otherwise the system would cut the answer off
    path, query = path.split("?", 2)
    status, headers, body = @app.call({ "REQUEST_METHOD" => method, "PATH_INFO" => path, "QUERY_STRING" => query.to_s })
    lines = headers.map { |name, value| "#{name}: #{value}\r\n" }
    socket.write("HTTP/1.1 #{status} -\r\n", *lines, "connection: close\r\n\r\n")
    body.each { |part| socket.write(part) }
  ensure
    socket.close
  end
end
