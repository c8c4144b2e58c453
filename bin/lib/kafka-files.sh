# shellcheck shell=bash disable=SC2154
# The files that bin/kafka writes for Maven and for Kafka. Meant to be sourced by it: all variables are its own.

pom() {
  cat <<XML
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$kafka_version</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$kafka_version</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>$log4j_version</version>
    </dependency>
  </dependencies>
</project>
XML
}

make_certificates() { # in $run/tls: an authority, and a server's and a client's certificate from it
  mkdir -m 700 "$run/tls"
  # shellcheck disable=SC2016
  quietly "$run/tls.log" bash -euc '
    cd "$1"
    openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj "/CN=Penstock test authority" -keyout ca.key -out ca.pem
    echo "subjectAltName=DNS:localhost,IP:127.0.0.1" >names
    for name in server client; do
      openssl req -newkey rsa:2048 -nodes -subj "/CN=$name" -keyout $name.key -out $name.csr
      openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -extfile names -out $name.pem
    done
    cat server.key server.pem >server-keystore.pem
    echo "subjectAltName=DNS:elsewhere.example" >names
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -extfile names -out stranger.pem
    cat server.key stranger.pem >stranger-keystore.pem' bash "$run/tls" || die "openssl could not make certificates"
}

server_properties() { # server_properties NODE
  local min_isr=$((brokers == 1 ? 1 : 2)) listener
  cat <<CONF
process.roles=broker,controller
node.id=$1
controller.quorum.voters=$voters
listeners=${listeners[$1]}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,MTLS:SSL,STRANGER:SSL,SASL:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs=$run/data-$1
auto.create.topics.enable=true
num.partitions=4
default.replication.factor=$brokers
min.insync.replicas=$min_isr
offsets.topic.num.partitions=4
offsets.topic.replication.factor=$brokers
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=$brokers
transaction.state.log.min.isr=$min_isr
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=$brokers
share.coordinator.state.topic.min.isr=$min_isr
group.initial.rebalance.delay.ms=0
# Groups notice soon that a member is gone. Clients choose their session in the classic protocol, brokers in the other one.
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=500
group.consumer.assignment.interval.ms=0
# By size, not by time: a test may write records of any timestamp.
log.retention.ms=-1
log.retention.bytes=268435456
log.segment.bytes=67108864
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS;User:$user
CONF
  ((!${#settings[@]})) || printf '%s\n' "${settings[@]}"
  [[ $secure ]] || return 0
  cat <<CONF
ssl.keystore.type=PEM
ssl.keystore.location=$run/tls/server-keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=$run/tls/ca.pem
listener.name.ssl.ssl.client.auth=requested
listener.name.mtls.ssl.client.auth=required
listener.name.stranger.ssl.keystore.type=PEM
listener.name.stranger.ssl.keystore.location=$run/tls/stranger-keystore.pem
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
CONF
  for listener in sasl sasl_ssl; do
    cat <<CONF
listener.name.$listener.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_$user="$password" user_$guest="$guest_password";
listener.name.$listener.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.$listener.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.$listener.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="$user";
CONF
  done
}

log4j_properties() {
  cat <<'CONF'
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c{1})%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
# Says when the server has started, which is what up waits for.
logger.started.name=kafka.server.KafkaRaftServer
logger.started.level=INFO
CONF
}
