# frozen_string_literal: true

module Penstock
  # What a consumer is in its group, see {Consumer#membership}. Immutable and shareable.
  #
  # - `state`: `:joining`: it has no assignment yet, or the group has removed it; `:stable`: it has one, perhaps of no partition;
  #   `:rebalancing`: the group assigns or revokes partitions, and the consumer has not answered; nil: it has not subscribed
  # - `member_id`: the coordinator's name for it, nil while it has none
  # - `generation`: of the group's assignment; with `group.protocol` "consumer" the member's epoch. nil while it has none. Commits
  #   are valid in one generation only
  # - `protocol`: `:classic` or `:consumer`
  # - `instance_id`: `group.instance.id`, or nil: the member is dynamic
  # - `error`: why the group does not let the consumer join, a text; nil: nothing is known. Polls raise it, and again every 5 s
  Membership = Struct.new(:state, :member_id, :generation, :protocol, :instance_id, :error) do
    include AsJson

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(**to_h, state: state&.to_s, protocol: protocol.to_s)
  end
end
