# frozen_string_literal: true

class HostileBroker
  # Defects that end the process inside librdkafka, 2.0.2 or 2.14, and that no setting prevents. A client written in C
  # (PlainClient) ends in the same way. docs/security.md documents them. When a newer librdkafka survives one of these, remove it
  # here.
  Fault = Struct.new(:what, :pattern, :example)

  NEGATIVE = /(null|of a negative count|of the least count)/
  private_constant :NEGATIVE

  FAULTS = [
    Fault.new("null where a name has to be is read as text",
              /\A\w+ \(\w+\): (brokers\.host|topics\.name|leader|member|members\.id) is null\z/,
              "metadata (produce): topics.name is null"),
    Fault.new("a negative count of partitions or brokers makes a table of negative size",
              /\Ametadata \(\w+\): ((brokers|topics\.partitions) is #{NEGATIVE}|a body of zeros)\z/,
              "metadata (produce): topics.partitions is null"),
    Fault.new("a negative count of versions is allocated (2.14)",
              /\Aapi_versions \(\w+\): (apis is null|a body of zeros)\z/,
              "api_versions (produce): apis is null"),
    Fault.new("a negative count of members is allocated, and an empty subscription is an assertion",
              /\Ajoin_group \(\w+\): (members is #{NEGATIVE}|members\.subscription is (null|empty))\z/,
              "join_group (subscribe): members.subscription is empty"),
    Fault.new("when committed offsets are asked for and the answer cannot be read, the missing list of partitions is",
              /\A(offset_fetch|heartbeat|sync_group) \(subscribe\): (an?|the|another|no|half) /,
              "offset_fetch (subscribe): no body"),
    Fault.new("a batch that LZ4 decompresses to nothing is an assertion",
              /\Afetch \(assign\): lz4 (cut in the middle|that is empty)\z/,
              "fetch (assign): lz4 that is empty"),
    Fault.new("a partition is released twice when its records are skipped and are cut (2.0.2)",
              /\Afetch \(assign\): an error and half of its records always\z/,
              "fetch (assign): an error and half of its records always")
  ].freeze

  # librdkafka's threads that read an answer for an admin client have many more such faults: see docs/security.md. A crash counts
  # as theirs only if Ruby did not report it, as it does for one in a thread of its own, and if the assertion is in their code.
  ADMIN_CRASH = /SIGSEGV(?!.*\[BUG\])|\brd(kafka)?(_\w+)?\.[ch]:\d+: \w+: Assertion/m

  # A defect that random rounds trigger too rarely for PlainClient to repeat it. The judge recognises the client's output only in
  # these versions, roles and rounds. Everything else is a finding.
  Defect = Struct.new(:name, :versions, :clients, :api, :pattern) do
    # @param attack [Object] only Mutations are recognised
    # @param found [Array<String>] what Victim#suffer found
    # @param version [String] of librdkafka
    def covers?(attack, found, version)
      attack.is_a?(Mutations) && versions.include?(version) && clients.include?(attack.client) && attack.changed?(api) &&
        found.size == 1 && pattern.match?(found.first)
    end
  end

  # rd_kafka_fetch_reply_handle_partition of 2.0.2 drops its reference to the partition, then skips the records. If they are cut,
  # that jumps to err_parse, which drops it again. The count goes below zero later, mostly when the client closes.
  DEFECTS = [
    Defect.new("a partition released twice", %w[2.0.2], %i[assign subscribe], :fetch,
               /:\ died,\ pid\ \d+\ SIGABRT\ \(signal\ 6\)(?:\ \(core\ dumped\))?\n
                (?:.*\n)*\S+:\ \S*rd\.h:351:\ rd_refcnt_sub0:\ Assertion\ `!\*"refcnt\ sub-zero"'\ failed\.$/x)
  ].freeze

  # @return [Defect, nil]
  def self.defect(attack, found, version = Penstock.librdkafka_version)
    DEFECTS.find { |defect| defect.covers?(attack, found, version) }
  end
end
