# frozen_string_literal: true

class HostileBroker
  # The answers of an honest broker to an admin client, which asks for one thing of each kind.
  module GoodAdminAnswers
    APIS = {
      15 => [:describe_groups, 0, 4], 16 => [:list_groups, 0, 5], 19 => [:create_topics, 0, 4], 20 => [:delete_topics, 0, 3],
      21 => [:delete_records, 0, 1], 29 => [:describe_acls, 0, 1], 30 => [:create_acls, 0, 1], 31 => [:delete_acls, 0, 1],
      32 => [:describe_configs, 0, 1], 33 => [:alter_configs, 0, 1], 37 => [:create_partitions, 0, 1],
      42 => [:delete_groups, 0, 1], 43 => [:elect_leaders, 0, 1], 44 => [:incremental_alter_configs, 0, 0],
      47 => [:offset_delete, 0, 0], 50 => [:describe_scram_users, 0, 0], 51 => [:alter_scram_users, 0, 0]
    }.freeze
    NAMES = APIS.values.map(&:first).freeze
    FLEXIBLE = { list_groups: 3, describe_scram_users: 0, alter_scram_users: 0 }.freeze
    GROUP = "attacked"
    USER = "attacked"

    def create_topics(answer, _request)
      answer.int32(:throttle)
      answer.array(:topics, [GoodAnswers::TOPIC]) do |name|
        answer.string(:name, name)
        answer.error(:error)
        answer.string(:error_message, nil)
      end
    end
    alias create_partitions create_topics

    def delete_topics(answer, _request)
      answer.int32(:throttle)
      answer.array(:topics, [GoodAnswers::TOPIC]) do |name|
        answer.string(:name, name)
        answer.error(:error)
      end
    end

    def delete_records(answer, _request)
      answer.int32(:throttle)
      answer.array(:topics, [GoodAnswers::TOPIC]) do |name|
        answer.string(:name, name)
        answer.array(:partitions, [0]) do |number|
          answer.int32(:number, number)
          answer.int64(:low_watermark, 1)
          answer.error(:error)
        end
      end
    end

    def describe_configs(answer, _request)
      answer.int32(:throttle)
      answer.array(:resources, [GoodAnswers::TOPIC]) do |name|
        resource(answer, name)
        answer.array(:configs, ["retention.ms"]) do |setting|
          answer.string(:name, setting)
          answer.string(:value, "1000")
          answer.int8(:read_only)
          answer.int8(:source, 1)
          answer.int8(:sensitive)
          answer.array(:synonyms, ["log.retention.ms"]) do |synonym|
            answer.string(:name, synonym)
            answer.string(:value, "2000")
            answer.int8(:source, 5)
          end
        end
      end
    end

    def alter_configs(answer, _request)
      answer.int32(:throttle)
      answer.array(:resources, [GoodAnswers::TOPIC]) { |name| resource(answer, name) }
    end
    alias incremental_alter_configs alter_configs

    def list_groups(answer, request)
      answer.int32(:throttle)
      answer.error(:error)
      answer.array(:groups, [GROUP]) do |id|
        answer.string(:id, id)
        answer.string(:protocol_type, "consumer")
        answer.string(:state, "Stable") if request.version >= 4
        answer.string(:type, "classic") if request.version >= 5
        answer.tags
      end
      answer.tags
    end

    def describe_groups(answer, request)
      answer.int32(:throttle)
      answer.array(:groups, [GROUP]) do |id|
        answer.error(:error)
        answer.string(:id, id)
        answer.string(:state, "Stable")
        answer.string(:protocol_type, "consumer")
        answer.string(:protocol, "range")
        answer.array(:members, ["member-1"]) { |member| member(answer, member, request) }
        answer.int32(:authorized_operations, -2**31) if request.version >= 3
      end
    end

    def delete_groups(answer, _request)
      answer.int32(:throttle)
      answer.array(:groups, [GROUP]) do |id|
        answer.string(:id, id)
        answer.error(:error)
      end
    end

    def offset_delete(answer, _request)
      answer.error(:error)
      answer.int32(:throttle)
      answer.array(:topics, [GoodAnswers::TOPIC]) do |name|
        answer.string(:name, name)
        answer.array(:partitions, [0]) do |number|
          answer.int32(:number, number)
          answer.error(:error)
        end
      end
    end

    def create_acls(answer, _request)
      answer.int32(:throttle)
      answer.array(:results, [1]) do
        answer.error(:error)
        answer.string(:error_message, nil)
      end
    end

    def describe_acls(answer, _request)
      answer.int32(:throttle)
      answer.error(:error)
      answer.string(:error_message, nil)
      answer.array(:resources, [GoodAnswers::TOPIC]) do |name|
        acl_resource(answer, name)
        answer.array(:acls, ["User:attacked"]) { |principal| acl(answer, principal) }
      end
    end

    def delete_acls(answer, _request)
      answer.int32(:throttle)
      answer.array(:filters, [1]) do
        answer.error(:error)
        answer.string(:error_message, nil)
        answer.array(:acls, ["User:attacked"]) do |principal|
          answer.error(:error)
          answer.string(:error_message, nil)
          acl_resource(answer, GoodAnswers::TOPIC)
          acl(answer, principal)
        end
      end
    end

    def elect_leaders(answer, _request)
      answer.int32(:throttle)
      answer.error(:error)
      answer.array(:topics, [GoodAnswers::TOPIC]) do |name|
        answer.string(:name, name)
        answer.array(:partitions, [0]) do |number|
          answer.int32(:number, number)
          answer.error(:error)
          answer.string(:error_message, nil)
        end
      end
    end

    def describe_scram_users(answer, _request)
      answer.int32(:throttle)
      answer.error(:error)
      answer.string(:error_message, nil)
      answer.array(:users, [USER]) do |user|
        answer.string(:name, user)
        answer.error(:error)
        answer.string(:error_message, nil)
        answer.array(:credentials, [1]) do |mechanism|
          answer.int8(:mechanism, mechanism)
          answer.int32(:iterations, 8192)
          answer.tags
        end
        answer.tags
      end
      answer.tags
    end

    def alter_scram_users(answer, _request)
      answer.int32(:throttle)
      answer.array(:users, [USER]) do |user|
        answer.string(:name, user)
        answer.error(:error)
        answer.string(:error_message, nil)
        answer.tags
      end
      answer.tags
    end

    private

    def resource(answer, name)
      answer.error(:error)
      answer.string(:error_message, nil)
      answer.int8(:type, 2)
      answer.string(:name, name)
    end

    def member(answer, id, request)
      answer.string(:id, id)
      answer.string(:instance, nil) if request.version >= 4
      answer.string(:client_id, "penstock")
      answer.string(:host, "/127.0.0.1")
      answer.bytes(:metadata, [0, 1].pack("s>l>") + Answer.string(GoodAnswers::TOPIC) + [-1].pack("l>"))
      answer.bytes(:assignment, [0, 1].pack("s>l>") + Answer.string(GoodAnswers::TOPIC) + [1, 0, -1].pack("l>l>l>"))
    end

    def acl_resource(answer, name)
      answer.int8(:resource, 2)
      answer.string(:name, name)
      answer.int8(:pattern, 3)
    end

    def acl(answer, principal)
      answer.string(:principal, principal)
      answer.string(:host, "*")
      answer.int8(:operation, 3)
      answer.int8(:permission, 3)
    end
  end
end
