# frozen_string_literal: true

require "fiddle"
require "rbconfig"
require_relative "limited"

# The objects of librdkafka that the extension has created and destroyed, as counted by test/c/allocations.c, which must be
# preloaded.
module AllocationCounts
  ROOT = File.expand_path("../..", __dir__)
  SOURCE = File.join(ROOT, "test/c/allocations.c")
  SHIM = File.join(ROOT, "tmp", "allocations-#{RUBY_VERSION}.so")
  # Functions that neither return anything to destroy nor destroy anything.
  NEUTRAL = /
    \Ard_kafka_(?:(?![A-Z]\w*_(?:new|destroy|of_topic_names)\z)[A-Z]\w*
    |event_[A-Z]\w*|event_opaque|(?:acl|group|topic|topic_partition)_result_\w+|metadata_\w*
    |assign|assignment_lost|commit|commit_queue|committed
    |conf_(?:enable|get|set)\w*|conf_properties_show|conf_interceptor_add_on_new
    |conf|consumer_closed|controllerid|err2name|err2str|error_(?:code|is_\w+|string|txn_requires_abort)
    |event_(?:error\w*|log|message_\w+|stats|topic_partition_list|type)|fatal_error|flush|get_err_descs|get_watermark_offsets
    |header_(?:add|cnt|get_all)|interceptor_add_\w+|last_error|message_\w+|name
    |mock_(?:broker|clear|cluster_bootstraps|partition|push|topic)\w*|msg_partitioner_\w+
    |oauthbearer_set_token\w*|offsets_store|offsets_for_times|opaque
    |(?:pause|resume)_partitions|produce_batch|purge|query_watermark_offsets|queue_cb_event_enable
    |queue_forward|queue_length|queue_yield|rebalance_protocol|set_log_queue|subscribe
    |test_fatal_error|topic_conf_(?:get|set\w+)|topic_name
    |topic_partition_list_(?:add|del|del_by_idx|find)|topic_partition_[gs]et_leader_epoch
    |unsubscribe|version|version_str)\z
  /x

  module_function

  # Runs this Ruby program again with the shim preloaded, unless it is preloaded already.
  def preload
    return if ENV["LD_PRELOAD"] == SHIM

    build
    exec({ "LD_PRELOAD" => SHIM }, RbConfig.ruby, "-w", "-I", File.join(ROOT, "lib"), $PROGRAM_NAME, *ARGV)
  end

  def build
    return if File.exist?(SHIM) && File.mtime(SHIM) > File.mtime(SOURCE)

    flags = `pkg-config --cflags rdkafka`.split
    output, status = Limited.capture2e("cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", SOURCE,
                                       *flags, "-o", SHIM, "-ldl")
    raise output unless status.success?
  end

  # @return [Hash{String => Array(Integer, Integer)}] for each kind, how many were created, and how many destroyed
  def counts
    counts = Fiddle::Pointer.malloc(2 * Fiddle::SIZEOF_LONG, Fiddle::RUBY_FREE)
    (0..).each_with_object({}) do |kind, all|
      name = function.call(kind, counts)
      return all if name.null?

      all[name.to_s] = counts[0, counts.size].unpack("l!2")
    end
  end

  # @return [Hash{String => Integer}] how many of each kind exist
  def live = counts.transform_values { |made, gone| made - gone }

  # @return [Array<String>] functions of librdkafka that the extension calls and this file does not classify
  def unknown_functions
    called = undefined(File.join(ROOT, "lib/penstock/penstock.#{RbConfig::CONFIG["DLEXT"]}"))
    counted = `nm -D --defined-only #{SHIM}`.scan(/ T (rd_kafka_\w+)/).flatten
    called.grep_v(NEUTRAL) - counted
  end

  def undefined(library) = `nm -D --undefined-only #{library}`.scan(/rd_kafka_\w+/)

  def function
    @function ||= Fiddle::Function.new(Fiddle::Handle::DEFAULT["penstock_allocations"], [Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP],
                                       Fiddle::TYPE_VOIDP)
  end
end
