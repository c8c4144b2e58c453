# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/kafka_topics"

# Runs the snippets of docs/admin.md as one program, against a real Kafka.
class AdminGuideTest < Minitest::Test
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }
  PAGE = File.read(File.expand_path("../../docs/admin.md", __dir__))
  NOT_RUN = /^<!-- not run.*?-->\n```ruby\n.*?^```\n/m
  LIBRARY = File.expand_path("../../lib", __dir__)

  def teardown
    KafkaTopics.admin(SERVERS) { |admin| admin.delete_topics(*admin.topics.keys.grep(/-#{@suffix}\z/), wait: false) }
  end

  # The names of topics, groups and users, which other tests may have too.
  def own(program)
    @suffix = SecureRandom.hex(4)
    program.gsub(/"(?:orders|audit|payments|refunds|billing|billing-2)"/) { |name| "#{name.chop}-#{@suffix}\"" }
           .gsub("User:billing", "User:billing-#{@suffix}").gsub("localhost:9092", SERVERS)
  end

  def test_every_snippet_runs
    program = own(PAGE.gsub(NOT_RUN, "").scan(/^```ruby\n(.*?)^```/m).join)
    output = IO.popen([RbConfig.ruby, "-w", "-I", LIBRARY, "-e", program, { err: %i[child out] }], &:read)
    assert_predicate $?, :success?, output
    assert_match(/from 6 to 12 partitions/, output)
    refute_match(/warn/i, output)
  end
end
