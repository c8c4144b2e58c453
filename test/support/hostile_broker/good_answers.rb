# frozen_string_literal: true

require_relative "good_admin_answers"

class HostileBroker
  # The answers of an honest broker: one topic with one partition. The broker is the only one, and coordinates every group.
  class GoodAnswers
    include GoodAdminAnswers

    # The first version with compact strings and tagged fields.
    FLEXIBLE = { api_versions: 3, metadata: 9, **GoodAdminAnswers::FLEXIBLE }.freeze

    # number => name, oldest and newest version. librdkafka 2.0.2 asks for Metadata in version 4, 2.14 in version 9.
    APIS = {
      0 => [:produce, 0, 7], 1 => [:fetch, 0, 11], 2 => [:list_offsets, 0, 1], 3 => [:metadata, 0, 9],
      8 => [:offset_commit, 0, 7], 9 => [:offset_fetch, 0, 5], 10 => [:find_coordinator, 0, 2], 11 => [:join_group, 0, 5],
      12 => [:heartbeat, 0, 3], 13 => [:leave_group, 0, 1], 14 => [:sync_group, 0, 3], 17 => [:sasl_handshake, 0, 1],
      18 => [:api_versions, 0, 3], 22 => [:init_producer_id, 0, 1], 24 => [:add_partitions_to_txn, 0, 0],
      26 => [:end_txn, 0, 1], 36 => [:sasl_authenticate, 0, 1], **GoodAdminAnswers::APIS
    }.freeze
    NAMES = APIS.values.map(&:first).freeze
    TOPIC = "attacked"
    MEMBER = "member-1"
    STORED = 12 # messages in the topic

    # @param cluster [Cluster]
    def initialize(cluster)
      @cluster = cluster
    end

    # @param request [Request]
    # @return [Answer]
    def to(request)
      flexible = request.version >= FLEXIBLE.fetch(request.api, Float::INFINITY)
      Answer.new(flexible:).tap { |answer| send(request.api, answer, request) }
    end

    # ---- any client ----

    def api_versions(answer, request)
      answer.error(:error)
      answer.array(:apis, APIS.to_a) do |number, (_, least, most)|
        answer.int16(:key, number)
        answer.int16(:least, least)
        answer.int16(:most, most)
        answer.tags
      end
      answer.int32(:throttle) if request.version >= 1
      answer.tags
    end

    def metadata(answer, request)
      answer.int32(:throttle)
      answer.array(:brokers, @cluster.ports.keys) { |id| broker(answer, id) }
      answer.string(:cluster_id, "hostile")
      answer.int32(:controller, 1)
      answer.array(:topics, [TOPIC]) { |name| topic(answer, name, request.version) }
      answer.int32(:authorized_operations, -2**31) if request.version >= 8
      answer.tags
    end

    def sasl_handshake(answer, _request)
      answer.error(:error)
      answer.array(:mechanisms, ["PLAIN"]) { |name| answer.string(:name, name) }
    end

    def sasl_authenticate(answer, request)
      answer.error(:error)
      answer.string(:error_message, nil)
      answer.bytes(:auth_bytes, "")
      answer.int64(:session_lifetime) if request.version >= 1
    end

    # ---- producers ----

    def produce(answer, request)
      answer.array(:topics, [TOPIC]) do |name|
        answer.string(:name, name)
        answer.array(:partitions, [0]) do |number|
          answer.int32(:number, number)
          answer.error(:error)
          answer.int64(:base_offset, request.count)
          answer.int64(:log_append_time, -1)
          answer.int64(:log_start_offset, 0)
        end
      end
      answer.int32(:throttle)
    end

    def init_producer_id(answer, _request)
      answer.int32(:throttle)
      answer.error(:error)
      answer.int64(:producer_id, 4_000)
      answer.int16(:epoch, 0)
    end

    def add_partitions_to_txn(answer, _request)
      answer.int32(:throttle)
      answer.array(:topics, [TOPIC]) do |name|
        answer.string(:name, name)
        answer.array(:partitions, [0]) do |number|
          answer.int32(:number, number)
          answer.error(:error)
        end
      end
    end

    def end_txn(answer, _request)
      answer.int32(:throttle)
      answer.error(:error)
    end

    # ---- consumers ----

    def list_offsets(answer, request)
      answer.array(:topics, [TOPIC]) do |name|
        answer.string(:name, name)
        answer.array(:partitions, [0]) do |number|
          answer.int32(:number, number)
          answer.error(:error)
          answer.int64(:timestamp, -1)
          answer.int64(:offset, request.body.end_with?([-1].pack("q>")) ? STORED : 0) # -1 asks for the end
        end
      end
    end

    def fetch(answer, request)
      answer.int32(:throttle)
      answer.error(:error)
      answer.int32(:session)
      answer.array(:topics, request.fetches ? [TOPIC] : []) do |name|
        answer.string(:name, name)
        answer.array(:partitions, [0]) { |number| fetched(answer, number, request.fetch_offset) }
      end
    end

    def find_coordinator(answer, _request)
      answer.int32(:throttle)
      answer.error(:error)
      answer.string(:error_message, nil)
      answer.int32(:id, @cluster.coordinator)
      answer.string(:host, "127.0.0.1")
      answer.int32(:port, @cluster.ports.fetch(@cluster.coordinator))
    end

    def join_group(answer, _request)
      answer.int32(:throttle)
      answer.error(:error)
      answer.int32(:generation, 1)
      answer.string(:protocol, "range")
      answer.string(:leader, MEMBER)
      answer.string(:member, MEMBER)
      answer.array(:members, [MEMBER]) do |member|
        answer.string(:id, member)
        answer.string(:instance, nil)
        answer.bytes(:subscription, [0, 1].pack("s>l>") + Answer.string(TOPIC) + [-1].pack("l>"))
      end
    end

    def sync_group(answer, _request)
      answer.int32(:throttle)
      answer.error(:error)
      answer.bytes(:assignment, [0, 1].pack("s>l>") + Answer.string(TOPIC) + [1, 0, -1].pack("l>l>l>"))
    end

    def heartbeat(answer, _request)
      answer.int32(:throttle)
      answer.error(:error)
    end

    alias leave_group heartbeat

    def offset_fetch(answer, _request)
      answer.int32(:throttle)
      answer.array(:topics, [TOPIC]) do |name|
        answer.string(:name, name)
        answer.array(:partitions, [0]) do |number|
          answer.int32(:number, number)
          answer.int64(:offset, -1)
          answer.int32(:leader_epoch, -1)
          answer.string(:metadata, nil)
          answer.error(:error)
        end
      end
      answer.error(:error)
    end

    def offset_commit(answer, _request)
      answer.int32(:throttle)
      answer.array(:topics, [TOPIC]) do |name|
        answer.string(:name, name)
        answer.array(:partitions, [0]) do |number|
          answer.int32(:number, number)
          answer.error(:error)
        end
      end
    end

    private

    def broker(answer, id)
      answer.int32(:id, id)
      answer.string(:host, "127.0.0.1")
      answer.int32(:port, @cluster.ports.fetch(id))
      answer.string(:rack, nil)
      answer.tags
    end

    def topic(answer, name, version)
      answer.error(:error)
      answer.string(:name, name)
      answer.int8(:internal)
      answer.array(:partitions, [0]) { |number| partition(answer, number, version) }
      answer.int32(:authorized_operations, -2**31) if version >= 8
      answer.tags
    end

    def partition(answer, number, version)
      answer.error(:error)
      answer.int32(:number, number)
      answer.int32(:leader, 1)
      answer.int32(:leader_epoch, 0) if version >= 7
      %i[replicas in_sync].each { |name| answer.array(name, [1]) { |id| answer.int32(:id, id) } }
      answer.array(:offline, []) { nil } if version >= 5
      answer.tags
    end

    def fetched(answer, number, offset)
      stored = offset < STORED ? Records.good(base: offset, count: [STORED - offset, 3].min) : ""
      answer.int32(:number, number)
      answer.error(:error)
      answer.int64(:high_watermark, STORED)
      answer.int64(:last_stable_offset, STORED)
      answer.int64(:log_start_offset, 0)
      answer.array(:aborted, []) { nil }
      answer.int32(:preferred_replica, -1)
      answer.bytes(:records, stored, type: :records)
    end
  end
end
