# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/app_test_case"
require "penstock/cli"

# `penstock dead-letters`, with dead letters that an application has made.
class CLIDeadLettersTest < AppTestCase
  SECRET = "geheim-4712"

  # @return [Array(Integer, String, String)] the status, stdout and stderr
  def cli(*arguments, servers: cluster.bootstrap_servers)
    out = StringIO.new
    err = StringIO.new
    status = Penstock::CLI.start(["dead-letters", *arguments, *(["-b", servers] if servers)], out:, err:)
    [status, out.string, err.string]
  end

  # An application that fails while @down.
  # @return [Array(String, String)] its topic and that of dead letters
  def fail_some(payloads, **more)
    names = [topic(partitions: 2), topic(partitions: 1)]
    @down = true
    @server = start(names[0], retry: { times: 0 }, dead_letter: names[1]) do |message|
      raise ArgumentError, "down\e[31m" if @down && message.payload != "good"

      @seen << [message.partition, message.key, message.payload, message.headers]
    end
    copies = Thread::Queue.new
    @server.instance_variable_get(:@loop).monitor.subscribe("dead_letter_queue.dispatched") { |event| copies << event }
    produce(names[0], payloads, partition: 1, **more)
    payloads.count { |payload| payload != "good" }.times { copies.pop }
    names
  end

  # @return [Array(Integer, Integer, String)] the status, how many were sent, and stderr
  def replay(*arguments) = cli("replay", *arguments).then { |status, out, err| [status, sent(out), err] }

  def sent(text) = text[/(\d+) messages? (?:would be )?sent/, 1].to_i

  def test_list_and_show
    _, dead = fail_some(%w[a good b], key: "k", headers: { "trace" => %w[1 2] })
    status, out, = cli("list", dead)
    assert_equal 0, status
    lines = out.lines(chomp: true)
    assert_equal "2 messages", lines.last
    assert_match(%r{\A0/0 \S+/1/0 #{@group} retriable attempts=1 \d{4}-\S+Z ArgumentError: down\\x1B\[31m\z}, lines[0])
    status, out, = cli("list", dead, "--json")
    row = JSON.parse(out.lines.last)
    assert_equal [0, "0/1", "ArgumentError", "k"], [status, *row.values_at("place", "error", "key")]
    assert_equal "0 messages\n", cli("list", dead, "--error", "IOError")[1]
    status, out, = cli("show", dead, "--place", "0/1")
    assert_equal 0, status
    ["key: k", "header trace: 1", "header trace: 2", "payload (1 byte): b", "header source_offset: 2"].each do |text|
      assert_includes out, text
    end
    assert_equal [1, "", "penstock: there is no such message\n"], cli("show", dead, "--place", "0/7")
  end

  def test_a_replay_sends_each_message_once_to_where_it_was
    source, dead = fail_some(%w[a good b], key: "k", headers: { "trace" => %w[1 2] })
    seen(1) # the good one
    @down = false
    assert_equal [0, 2, ""], replay(dead, "--dry-run")
    assert_equal [0, 2, ""], replay(dead)
    found = seen(2)
    assert_equal([[1, "k", "a"], [1, "k", "b"]], found.map { |row| row.first(3) })
    headers = found[0].last
    assert_equal [%w[1 2], source, "0"], headers.values_at("trace", "source_topic", "source_offset")
    assert_empty headers.keys & %w[error_class error_message error_kind failed_at source_attempts]
    assert_equal [0, 0, ""], replay(dead)
    assert_equal [0, 2, ""], replay(dead, "--group", "another-#{@group}", "--dry-run")
  end

  # Its first origin is still known, and it is replayed once more.
  def test_a_message_that_fails_again
    _, dead = fail_some(%w[a])
    assert_equal [0, 1, ""], replay(dead)
    eventually { cli("list", dead)[1].lines.last == "2 messages\n" }
    rows = cli("list", dead, "--json")[1].lines.map { |text| JSON.parse(text)["source"] }
    assert_equal 1, rows.uniq.size
    @down = false
    assert_equal [0, 1, ""], replay(dead)
    assert_equal "a", seen(1)[0][2]
  end

  def test_chosen_messages_and_another_topic
    _, dead = fail_some(%w[a b c])
    other = topic(partitions: 1)
    2.times { assert_equal [0, 1, ""], replay(dead, "--place", "0/1", "--to", other) } # nothing is noted
    assert_equal [0, 3, ""], replay(dead, "--error", "ArgumentError", "--to", other)
    assert_equal [0, 0, ""], replay(dead, "--error", "IOError", "--to", other)
    payloads = Penstock.read(other, "bootstrap.servers": cluster.bootstrap_servers).map(&:payload)
    assert_equal %w[b b a b c], payloads
  end

  # Somebody else's messages, and a tombstone.
  def test_messages_without_a_source
    dead = topic(partitions: 1)
    other = topic(partitions: 1)
    producer.produce_many_sync([{ topic: dead, payload: "stray" }, { topic: dead, payload: nil, key: "k" },
                                { topic: dead, payload: "loop", headers: { "source_topic" => dead } }])
    status, out, = cli("replay", dead)
    assert_equal [1, 0], [status, sent(out)]
    assert_equal ["left, as it has no source: 0/0"] * 1, out.lines(chomp: true).grep(%r{left.*0/0})
    assert_equal 3, out.scan("left").size
    assert_equal [0, 3, ""], replay(dead, "--to", other, "--group", "g-#{@group}")
    found = Penstock.read(other, "bootstrap.servers": cluster.bootstrap_servers)
    assert_equal [[nil, "stray"], ["k", nil], [nil, "loop"]], (found.map { |message| [message.key, message.payload] })
    assert_equal "0/0 of unknown source\n", cli("list", dead)[1].lines.first
    assert_match(/payload: nil \(a tombstone\)/, cli("show", dead, "--place", "0/1")[1])
  end

  def test_wrong_usage
    { [] => /requires list, show or replay/, %w[list] => /and a topic/, %w[look dead] => /requires list/,
      %w[list a b] => /one topic/, %w[list a --timeout 0] => /--timeout must be/,
      %w[show dead] => /requires --place/, %w[show dead --place 1] => %r{PARTITION/OFFSET},
      %w[replay dead --to dead] => /another/, %w[list dead --to other] => /--to is an option of replay/,
      %w[show dead --place 0/0 --group g] => /--group is an option of replay/,
      %w[list dead --dry-run] => /--dry-run is an option of replay/,
      %w[replay dead --json] => /--json is an option of list/, ["replay", "dead", "--group", ""] => /--group is empty/,
      ["list", "a b"] => /topic's name must be 1 to 249/, ["replay", "dead", "--to", "a b"] => /topic's name must be/,
      %w[list dead --nonsense] => /--nonsense/, ["list", "dead", "-X", "sasl.password:#{SECRET}"] => /expected NAME=VALUE/ }
      .each do |arguments, text|
      status, out, err = cli(*arguments)
      assert_equal [2, ""], [status, out], arguments.inspect
      assert_match text, err
      refute_includes err, SECRET
    end
    assert_match(/use --bootstrap/, cli("list", "dead", servers: nil)[2])
    assert_match(/--bootstrap is empty/, cli("list", "dead", servers: "")[2])
    assert_match(/Usage: penstock dead-letters/, cli("--help", servers: nil)[1])
  end

  def test_a_kafka_that_is_away
    [%w[list dead --timeout 1], %w[replay dead --timeout 1]].each do |arguments|
      status, out, err = cli(*arguments, servers: "127.0.0.1:1")
      assert_equal [1, ""], [status, out]
      assert_match(/\Apenstock: /, err)
    end
  end
end
