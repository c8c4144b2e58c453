# frozen_string_literal: true

require "socket"

# Writes records with arbitrary bytes into an embedded cluster, which checks only their number. Other clients may write such
# records, librdkafka never does. Kafka's protocol: a Produce request, version 3, with one batch of magic 2. Numbers in records
# are zigzag varints.
module RawRecords
  NO_ERROR = 0
  CONTROL = 0x20 # an attribute of a batch
  NOT_LEADER = 6

  module_function

  # @param records [Array<String>] see {record}
  def write(cluster, topic, records, partition: 0, attributes: 0)
    request = produce_request(topic, partition, batch(records, attributes))
    codes = cluster.bootstrap_servers.split(",").map { |server| error_code(ask(server, request), topic) }
    codes.include?(NO_ERROR) or raise "the cluster rejected the records: #{codes}"
  end

  # What a coordinator writes behind the messages of a committed transaction: an offset without a message.
  def write_commit_marker(cluster, topic, partition: 0)
    write(cluster, topic, [record(0, int(0), key: [0, 1].pack("s>s>"))], partition:, attributes: CONTROL)
  end

  # @param index [Integer] the record's index in its batch
  # @param headers [String] bytes
  def record(index, headers, payload: "p#{index}", key: nil)
    key = key ? int(key.bytesize) + key : int(-1)
    body = "\0".b + int(0) + int(index) + key + int(payload.bytesize) + payload.b + headers.b
    int(body.bytesize) + body
  end

  # @param pairs [Array<Array(String, String | nil)>]
  # @return [String] bytes
  def headers(*pairs)
    pairs.reduce(int(pairs.size)) do |bytes, (name, value)|
      bytes + int(name.bytesize) + name.b + (value ? int(value.bytesize) + value.b : int(-1))
    end
  end

  def int(number)
    rest = (number << 1) ^ (number >> 63)
    bytes = [rest & 0x7f]
    bytes << (rest & 0x7f) while (rest >>= 7).positive?
    bytes.map.with_index { |byte, i| i == bytes.size - 1 ? byte : byte | 0x80 }.pack("C*")
  end

  def batch(records, attributes)
    attributes_to_count = [attributes, records.size - 1, 1_600_000_000_000, 1_600_000_000_000, -1, -1, -1, records.size]
    rest = attributes_to_count.pack("s>l>q>q>q>s>l>l>") + records.join
    leader_epoch_magic_crc = [-1, 2, 0].pack("l>cL>")
    [0, leader_epoch_magic_crc.bytesize + rest.bytesize].pack("q>l>") + leader_epoch_magic_crc + rest
  end

  def produce_request(topic, partition, batch)
    header = [0, 3, 1].pack("s>s>l>") + string("raw")
    header + [-1, -1, 10_000, 1].pack("s>s>l>l>") + string(topic) + [1, partition, batch.bytesize].pack("l>l>l>") + batch
  end

  def string(text) = [text.bytesize].pack("s>") + text

  def ask(server, request)
    host, port = server.split(":")
    Socket.tcp(host, port, connect_timeout: 10) do |socket|
      socket.write([request.bytesize].pack("l>") + request)
      socket.read(socket.read(4).unpack1("l>"))
    end
  end

  # After the correlation id: one topic, its name, one partition, its number, the code.
  def error_code(response, topic) = response[(4 + 4 + 2 + topic.bytesize + 4 + 4)..].unpack1("s>")
end
